#include "scheduler/cache_manager.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

Request make_request(std::int32_t row, std::vector<TokenId> prompt, std::int32_t max_tokens) {
  Request request;
  request.id = {static_cast<std::uint64_t>(row) + 1};
  request.row = {row};
  request.prompt_len = static_cast<std::int32_t>(prompt.size());
  request.tokens = std::move(prompt);
  request.device_len = request.prompt_len;
  request.max_device_len = request.prompt_len + max_tokens;
  return request;
}

std::vector<TokenId> iota(std::int32_t count, TokenId first = 1) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void compute(CacheManager& cache, Request& request) {
  Request* one = &request;
  cache.allocate({&one, 1});
  request.complete_step();
}

std::vector<TokenLoc> row_of(const CacheManager& cache, const Request& request) {
  const auto row = cache.page_table().row(request.row);
  return {row.begin(), row.begin() + request.cached_len};
}

// CASES KV-1, at the smallest: two requests with one prompt, computed in the same step.
TEST(CacheManagerTest, ADuplicateIsFreedOnlyAfterItsRowPointsAtTheTreesPages) {
  CacheManager cache({.num_pages = 10, .page_size = 2, .max_rows = 2, .max_seq_len = 20});
  Request a = make_request(0, iota(5), 3), b = make_request(1, iota(5), 3);
  ASSERT_TRUE(cache.admit(a, 0));
  ASSERT_TRUE(cache.admit(b, cache.pages_to_come(a)));
  compute(cache, a);
  compute(cache, b);
  EXPECT_EQ(row_of(cache, a), (std::vector<TokenLoc>{0, 1, 2, 3, 4}));
  EXPECT_EQ(row_of(cache, b), (std::vector<TokenLoc>{6, 7, 8, 9, 10}));
  cache.cache_prefix(a, 5);
  cache.cache_prefix(b, 5);
  EXPECT_EQ(row_of(cache, b), (std::vector<TokenLoc>{0, 1, 2, 3, 10})) << "the tail stays its own";
  EXPECT_EQ(cache.free_pages(), 10 - 4) << "pages 3 and 4 came back";
  const std::vector<const Request*> both{&a, &b};
  cache.check_integrity(both);
  cache.release(a);
  EXPECT_EQ(cache.cached().protected_pages, 2) << "b still reads them";
  cache.release(b);
  cache.check_integrity({});
  EXPECT_EQ(cache.free_pages() + cache.cached().total_pages(), 10);
}

TEST(CacheManagerTest, AtLeastOneTokenIsComputedAndTheMatchIsWholePages) {
  CacheManager cache({.num_pages = 10, .page_size = 2, .max_rows = 1, .max_seq_len = 20});
  Request first = make_request(0, iota(6), 1);
  ASSERT_TRUE(cache.admit(first, 0));
  compute(cache, first);
  cache.release(first);
  for (const auto& [length, cached] : {std::pair{6, 4}, {5, 4}, {4, 2}, {3, 2}, {2, 0}, {1, 0}}) {
    Request again = make_request(0, iota(length), 1);
    ASSERT_TRUE(cache.admit(again, 0));
    EXPECT_EQ(again.cached_len, cached) << "of " << length;
    compute(cache, again);
    cache.release(again);
    cache.check_integrity({});
  }
}

TEST(CacheManagerTest, AdmissionCountsPagesThatItsOwnLockTakesFromTheEvictableOnes) {
  // All ten pages are cached. A request that matches 5 of them may have 5 others, not 10.
  CacheManager cache({.num_pages = 10, .page_size = 1, .max_rows = 1, .max_seq_len = 20});
  Request first = make_request(0, iota(10), 1);
  ASSERT_TRUE(cache.admit(first, 0));
  compute(cache, first);
  cache.release(first);
  ASSERT_EQ(cache.cached().evictable_pages, 10);
  std::vector<TokenId> prompt = iota(5);
  prompt.push_back(77);
  Request fits = make_request(0, prompt, 5);      // 10 tokens with keys and values
  Request too_long = make_request(0, prompt, 6);  // 11
  EXPECT_FALSE(cache.admit(too_long, 0));
  EXPECT_EQ(too_long.cached_len, 0);
  EXPECT_EQ(cache.cached().protected_pages, 0) << "the refusal leaves no lock";
  EXPECT_FALSE(cache.admit(fits, 1)) << "one page is another's";
  EXPECT_TRUE(cache.admit(fits, 0));
  EXPECT_EQ(fits.cached_len, 5);
}

// PARITY A19: pages that come out of evictions are whole, distinct, and as many as were asked for.
TEST(CacheManagerTest, AllocationEvictsExactlyWhatIsMissing) {
  for (const std::int32_t page_size : {1, 4, 8}) {
    CacheManager cache(
        {.num_pages = 12, .page_size = page_size, .max_rows = 4, .max_seq_len = 12 * page_size});
    for (int i = 0; i < 3; ++i) {  // three prompts of 4 pages fill the pool
      Request request = make_request(0, iota(4 * page_size, 100 * (i + 1)), 1);
      ASSERT_TRUE(cache.admit(request, 0));
      compute(cache, request);
      cache.release(request);
    }
    EXPECT_EQ(cache.free_pages(), 0);
    Request large = make_request(1, iota(7 * page_size - (page_size > 1 ? 1 : 0), 5000), 1);
    ASSERT_TRUE(cache.admit(large, 0));
    compute(cache, large);
    EXPECT_EQ(cache.free_pages(), 0);
    EXPECT_EQ(cache.cached().total_pages(), 5) << "seven were evicted";
    std::set<TokenLoc> distinct;
    const std::vector<TokenLoc> locs = row_of(cache, large);
    for (std::size_t i = 0; i < locs.size(); ++i) {
      EXPECT_EQ(locs[i] % page_size, static_cast<TokenLoc>(i) % page_size);
      EXPECT_TRUE(distinct.insert(locs[i]).second);
      EXPECT_LT(locs[i], 12 * page_size) << "the dummy page is no one's";
    }
    const std::vector<const Request*> live{&large};
    cache.check_integrity(live);
    cache.release(large);
    cache.check_integrity({});
  }
}

TEST(CacheManagerTest, AskingForMoreThanWasReservedIsAnError) {
  CacheManager cache({.num_pages = 4, .page_size = 1, .max_rows = 1, .max_seq_len = 20});
  Request request = make_request(0, iota(3), 2);
  ASSERT_TRUE(cache.admit(request, 0));
  request.device_len = 6;
  Request* one = &request;
  EXPECT_THROW(cache.allocate({&one, 1}), Error);
}

TEST(CacheManagerTest, IntegrityFindsALeakAnAliasAndALockThatStayed) {
  const auto broken =
      [](const std::function<void(CacheManager&, Request&, Request&)>& damage) -> std::string {
    CacheManager cache({.num_pages = 10, .page_size = 1, .max_rows = 2, .max_seq_len = 20});
    Request a = make_request(0, iota(4), 2), b = make_request(1, iota(4, 50), 2);
    EXPECT_TRUE(cache.admit(a, 0));
    EXPECT_TRUE(cache.admit(b, 5));
    compute(cache, a);
    compute(cache, b);
    try {
      damage(cache, a, b);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(broken([](auto& cache, auto& a, auto&) {
              const std::vector<const Request*> only{&a};
              cache.check_integrity(only);
            }).find("invariant 1: 2 pages free, 4 owned, 10 in all"),
            std::string::npos);
  EXPECT_NE(broken([](auto& cache, auto& a, auto& b) {
              b.row = a.row;
              const std::vector<const Request*> both{&a, &b};
              cache.check_integrity(both);
            }).find("invariant 1: page 0 of a request has another owner"),
            std::string::npos);
  EXPECT_NE(broken([](auto& cache, auto& a, auto& b) {
              cache.cache_prefix(a, 4);
              cache.release(b);
              cache.check_integrity({});
            }).find("invariant 4: 4 pages are locked, but there is no request"),
            std::string::npos);
  EXPECT_NE(broken([](auto& cache, auto& a, auto& b) {
              a.prefix.cached_len = 2;
              const std::vector<const Request*> both{&a, &b};
              cache.check_integrity(both);
            }).find("invariant 2: page 0 of request 1 is not in the prefix cache"),
            std::string::npos);
}

}  // namespace
}  // namespace minisgl
