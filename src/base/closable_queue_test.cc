#include "base/closable_queue.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace minisgl {
namespace {

TEST(ClosableQueueTest, KeepsOrderAndRefusesAfterClose) {
  ClosableQueue<int> queue;
  EXPECT_TRUE(queue.push(1));
  EXPECT_TRUE(queue.push(2));
  queue.close();
  EXPECT_FALSE(queue.push(3));
  EXPECT_EQ(queue.pop(), 1) << "what was queued before is still there";
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_TRUE(queue.closed());
}

TEST(ClosableQueueTest, CloseWakesABlockedPop) {
  ClosableQueue<int> queue;
  std::thread waiter([&] { EXPECT_EQ(queue.pop(), std::nullopt); });
  queue.close();
  waiter.join();
}

TEST(ClosableQueueTest, EveryItemOfSeveralProducersReachesOneOfSeveralConsumers) {
  ClosableQueue<int> queue;
  constexpr int kEach = 1000;
  std::vector<std::thread> producers;
  for (int p = 0; p < 3; ++p)
    producers.emplace_back([&, p] {
      for (int i = 0; i < kEach; ++i) queue.push(p * kEach + i);
    });
  std::vector<std::vector<int>> taken(2);
  std::vector<std::thread> consumers;
  for (auto& mine : taken)
    consumers.emplace_back([&] {
      while (const auto item = queue.pop()) mine.push_back(*item);
    });
  for (auto& producer : producers) producer.join();
  queue.close();
  for (auto& consumer : consumers) consumer.join();
  std::set<int> all;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(taken[0].size() + taken[1].size(), 3U * kEach);
  EXPECT_EQ(all.size(), 3U * kEach);
}

}  // namespace
}  // namespace minisgl
