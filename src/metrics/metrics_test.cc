#include "metrics/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "minisgl/error.h"

namespace minisgl::metrics {
namespace {

TEST(HistogramTest, ABoundCountsAsBelowItself) {
  Histogram h({1, 2.5, 10});
  for (const double value : {0.0, 1.0, 1.0000001, 2.5, 10.0, 10.1, 1e9}) h.observe(value);
  EXPECT_EQ(h.snapshot().cumulative, (std::vector<std::uint64_t>{2, 4, 5, 7}));
}

TEST(HistogramTest, EqualsCountingEveryValueAgainstEveryBound) {
  std::mt19937 random(1);
  std::vector<double> bounds{0.001, 0.002, 0.1, 0.5, 3, 7};
  Histogram h(bounds);
  std::vector<double> values;
  double sum = 0;
  std::lognormal_distribution<double> distribution(-1, 3);
  for (int i = 0; i < 2000; ++i) {
    const double value = distribution(random);
    const auto times = random() % 4;
    h.observe(value, times);
    sum += value * static_cast<double>(times);
    values.insert(values.end(), times, value);
  }
  const Histogram::Snapshot snapshot = h.snapshot();
  for (std::size_t i = 0; i < bounds.size(); ++i)
    EXPECT_EQ(snapshot.cumulative[i],
              std::count_if(values.begin(), values.end(), [&](double v) { return v <= bounds[i]; }))
        << "up to " << bounds[i];
  EXPECT_EQ(snapshot.cumulative.back(), values.size());
  EXPECT_NEAR(snapshot.sum, sum, 1e-9 * sum);
}

TEST(HistogramTest, NothingIsLostBetweenThreads) {
  Histogram h({10, 20});
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        h.observe(i % 30);
        counter.add(2);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(h.snapshot().cumulative.back(), 40'000U);
  EXPECT_EQ(counter.value(), 80'000U);
  // 0 + ... + 29, 333 times, and 0 + ... + 9 for what is left of 10,000; whole numbers add exactly.
  EXPECT_EQ(h.snapshot().sum, 4 * (333 * 435 + 45));
}

TEST(HistogramTest, BoundsThatDoNotAscendAreRefused) {
  EXPECT_THROW(Histogram({}), Error);
  EXPECT_THROW(Histogram({1, 1}), Error);
  EXPECT_THROW(Histogram({2, 1}), Error);
}

TEST(HistogramTest, BoundsOfTokensEndAtTheirMaximum) {
  EXPECT_EQ(bounds_1_2_5(100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(bounds_1_2_5(4), (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace minisgl::metrics
