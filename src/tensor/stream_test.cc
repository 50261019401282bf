#include "tensor/stream.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

TEST(CpuStreamTest, TasksRunInOrderWhileTheCallerGoesOn) {
  CpuStream stream(2);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream.submit([&, i] { order.push_back(i); });
  stream.synchronize();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(CpuStreamTest, AnOpInsideAStepRunsAtItsPlace) {
  CpuStream stream(2);
  std::vector<int> order;
  stream.submit([&] {
    order.push_back(1);
    stream.run([&](ThreadPool&) { order.push_back(2); });
    order.push_back(3);
  });
  stream.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(CpuStreamTest, ACopyIsWorkLikeAnyOther) {
  CpuStream stream(1);
  std::vector<int> source{1, 2, 3};
  std::vector<int> target(3);
  stream.submit([&] { source[0] = 7; });
  stream.copy(target.data(), source.data(), 3 * sizeof(int));
  stream.synchronize();
  EXPECT_EQ(target, (std::vector<int>{7, 2, 3}));
}

TEST(CpuStreamTest, AnEventIsReachedAfterTheWorkBeforeItAndCanBeUsedAgain) {
  CpuStream stream(1);
  const auto event = stream.make_event();
  event->synchronize();  // never recorded: nothing to wait for
  int value = 0;
  for (int round = 1; round <= 50; ++round) {
    stream.submit([&] { ++value; });
    stream.record(*event);
    event->synchronize();
    ASSERT_EQ(value, round);
    ASSERT_TRUE(event->reached());
  }
}

TEST(CpuStreamTest, OneStreamWaitsForAnother) {
  CpuStream first(1);
  CpuStream second(1);
  const auto event = first.make_event();
  int value = 0;
  first.submit([&] { value = 1; });
  first.record(*event);
  second.wait(*event);
  int seen = 0;
  second.submit([&] { seen = value; });
  second.synchronize();
  EXPECT_EQ(seen, 1);
}

TEST(CpuStreamTest, AfterAFaultTheRestIsDroppedEventsAreReachedAndEveryWaiterHearsOfIt) {
  CpuStream stream(1);
  const auto event = stream.make_event();
  bool later = false;
  stream.submit([] { throw Error("broken"); });
  stream.submit([&] { later = true; });
  stream.record(*event);
  EXPECT_THROW(event->synchronize(), Error);
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_FALSE(later);
}

TEST(CpuStreamTest, ADryStreamDoesNothing) {
  const auto dry = CpuStream::make_dry();
  bool ran = false;
  dry->submit([&] { ran = true; });
  dry->run([&](ThreadPool&) { ran = true; });
  dry->synchronize();
  const auto event = dry->make_event();
  dry->record(*event);
  event->synchronize();
  EXPECT_FALSE(ran);
}

TEST(CpuStreamTest, WhatWasEnqueuedIsDoneBeforeItIsGone) {
  int done = 0;
  {
    CpuStream stream(2);
    for (int i = 0; i < 20; ++i)
      stream.run([&](ThreadPool& pool) {
        pool.parallel_for(2, [](std::int64_t) {});
        ++done;
      });
  }
  EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace minisgl
