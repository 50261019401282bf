#include "grammar/grammar_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace minisgl {
namespace {

using Cache = GrammarCache<int>;

Cache::Made made(int value, std::int64_t bytes) {
  return {std::make_shared<const int>(value), bytes};
}

TEST(GrammarCacheTest, TheLeastRecentlyUsedIsDroppedFirst) {
  Cache cache(20);
  int num_made = 0;
  const auto get = [&](const std::string& key, int value) {
    return *cache.get(key, [&] {
      ++num_made;
      return made(value, 10);
    });
  };
  EXPECT_EQ(get("a", 1), 1);
  EXPECT_EQ(get("b", 2), 2);
  EXPECT_EQ(get("a", 9), 1);  // b is the least recently used now
  EXPECT_EQ(get("c", 3), 3);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.bytes(), 20);
  EXPECT_EQ(num_made, 3);
  EXPECT_EQ(get("a", 9), 1);
  EXPECT_EQ(get("b", 4), 4);
  EXPECT_EQ(num_made, 4);
}

TEST(GrammarCacheTest, AValueLargerThanTheLimitStaysUntilTheNext) {
  Cache cache(20);
  const auto big = cache.get("big", [] { return made(1, 50); });
  EXPECT_EQ(cache.bytes(), 50);
  cache.get("small", [] { return made(2, 5); });
  EXPECT_EQ(cache.bytes(), 5);
  EXPECT_EQ(*big, 1);
}

TEST(GrammarCacheTest, AFailureIsNotKept) {
  Cache cache(20);
  EXPECT_THROW(cache.get("a", []() -> Cache::Made { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(*cache.get("a", [] { return made(1, 1); }), 1);
}

TEST(GrammarCacheTest, OfManyThreadsOneMakesAValue) {
  Cache cache(1000);
  std::atomic<int> num_made = 0;
  std::vector<std::thread> threads;
  std::atomic<int> sum = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        const std::string key = std::to_string((k + i) % 5);
        sum += *cache.get(key, [&] {
          ++num_made;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return made(1, 1);
        });
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_made, 5);
  EXPECT_EQ(sum, 160);
}

}  // namespace
}  // namespace minisgl
