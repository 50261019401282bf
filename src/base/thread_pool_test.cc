#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace minisgl {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryPartOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (const int parts : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> runs(parts);
    pool.parallel_for(parts, [&](std::int64_t i) { runs[i].fetch_add(1); });
    for (int i = 0; i < parts; ++i) ASSERT_EQ(runs[i].load(), 1) << "part " << i << " of " << parts;
  }
}

TEST_P(ThreadPoolTest, ManyShortLoopsInARowSeeEachOthersResults) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(37, 0);
  for (int round = 0; round < 5000; ++round)
    pool.parallel_for(static_cast<std::int64_t>(values.size()),
                      [&](std::int64_t i) { values[i] += i; });
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], static_cast<std::int64_t>(i) * 5000);
}

TEST_P(ThreadPoolTest, WakesHelpersThatHaveFallenAsleep) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<std::int64_t> sum{0};
    pool.parallel_for(100, [&](std::int64_t i) { sum.fetch_add(i); });
    ASSERT_EQ(sum.load(), 4950);
  }
}

TEST_P(ThreadPoolTest, TakesMorePartsThanFitItsCounter) {
  ThreadPool pool(GetParam());
  constexpr std::int64_t kParts = (1 << 20) + 12345;  // one loop counts up to 2^20 - 1
  std::atomic<std::int64_t> sum{0};
  pool.parallel_for(kParts, [&](std::int64_t i) { sum.fetch_add(i, std::memory_order_relaxed); });
  EXPECT_EQ(sum.load(), kParts * (kParts - 1) / 2);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(AvailableProcessorsTest, IsAtLeastOne) { EXPECT_GE(available_processors(), 1); }

}  // namespace
}  // namespace minisgl
