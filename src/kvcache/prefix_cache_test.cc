#include "kvcache/prefix_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "kvcache/naive_cache.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

using Ids = std::vector<TokenId>;
using Pages = std::vector<PageId>;

TEST(PrefixCacheFactoryTest, KnowsItsNamesAndListsThemInTheErrorForAnother) {
  for (const std::string_view name : prefix_cache_names()) {
    EXPECT_NE(make_prefix_cache(name, 16), nullptr);
  }
  try {
    make_prefix_cache("lru", 1);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("unknown prefix cache \"lru\"; known are: naive, radix"),
              std::string::npos);
  }
}

TEST(PrefixCacheFactoryTest, RefusesAPageSizeOfZero) {
  for (const std::string_view name : prefix_cache_names()) {
    EXPECT_THROW(make_prefix_cache(name, 0), Error);
  }
}

TEST(NaiveCacheTest, HoldsNothingAndLeavesEveryPageToTheCaller) {
  NaiveCache cache(1);
  const PrefixInsert inserted = cache.insert(Ids{1, 2, 3}, Pages{{0}, {1}, {2}});
  EXPECT_EQ(inserted.already_cached_len, 0);
  EXPECT_EQ(inserted.handle.cached_len, 0);
  cache.lock(inserted.handle);
  EXPECT_EQ(cache.match(Ids{1, 2, 3}).handle.cached_len, 0);
  cache.unlock(inserted.handle);
  EXPECT_EQ(cache.sizes().total_pages(), 0);
  EXPECT_TRUE(cache.evict(0).empty());
  EXPECT_THROW(cache.evict(1), Error);
  EXPECT_TRUE(cache.reset().empty());
}

}  // namespace
}  // namespace minisgl
