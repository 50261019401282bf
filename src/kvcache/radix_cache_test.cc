#include "kvcache/radix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "kvcache/page_allocator.h"
#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using Ids = std::vector<TokenId>;
using Pages = std::vector<PageId>;

Pages pages(std::initializer_list<std::int32_t> values) {
  Pages result;
  for (const std::int32_t value : values) result.push_back({value});
  return result;
}

Pages sorted(Pages values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(RadixCacheTest, EvictionSparesTheLockedPrefixOfASplitNode) {
  // [1 2] -> [3 4]      locked by a running request
  //       -> [7 8 9]    idle
  RadixCache cache(1);
  cache.insert(Ids{1, 2, 3, 4}, pages({10, 11, 12, 13}));
  const PrefixInsert inserted = cache.insert(Ids{1, 2, 7, 8, 9}, pages({30, 31, 20, 21, 22}));
  EXPECT_EQ(inserted.already_cached_len, 2);
  EXPECT_EQ(inserted.handle.cached_len, 5);
  EXPECT_EQ(inserted.pages, pages({10, 11, 20, 21, 22})) << "the tree's own pages come back";

  const PrefixHandle running = cache.match(Ids{1, 2, 3, 4}).handle;
  cache.lock(running);
  EXPECT_EQ(cache.sizes().protected_pages, 4);
  EXPECT_EQ(cache.sizes().evictable_pages, 3);

  EXPECT_EQ(sorted(cache.evict(3)), pages({20, 21, 22}));
  EXPECT_EQ(cache.match(Ids{1, 2, 7, 8, 9}).handle.cached_len, 2);
  EXPECT_EQ(cache.match(Ids{1, 2, 3, 4}).handle.cached_len, 4);
  EXPECT_NE(error_of([&] { cache.evict(1); }).find("1 pages to evict, but only 0 are not locked"),
            std::string::npos);
  cache.check_integrity();
}

// CASES KV-3.
TEST(RadixCacheTest, ALockCoversTheMatchedNodeItselfAndAPartialMatchSplitsFirst) {
  // [1 2 3 4 5 6]   match [1 2 3 9], lock    [1 2 3]* -> [4 5 6]     * locked
  //                 evict 3, insert [.. 7 8] [1 2 3]* -> [7 8]
  RadixCache cache(1);
  cache.insert(Ids{1, 2, 3, 4, 5, 6}, pages({1, 2, 3, 4, 5, 6}));
  const PrefixMatch match = cache.match(Ids{1, 2, 3, 9});
  EXPECT_EQ(match.handle.cached_len, 3);
  EXPECT_EQ(match.pages, pages({1, 2, 3}));
  cache.lock(match.handle);
  EXPECT_EQ(cache.sizes().evictable_pages, 3);
  EXPECT_EQ(cache.sizes().protected_pages, 3);
  EXPECT_EQ(sorted(cache.evict(3)), pages({4, 5, 6}));
  cache.insert(Ids{1, 2, 3, 7, 8}, pages({21, 22, 23, 7, 8}));
  cache.check_integrity();
  cache.unlock(match.handle);
  EXPECT_EQ(sorted(cache.evict(5)), pages({1, 2, 3, 7, 8}));
  EXPECT_EQ(cache.sizes().total_pages(), 0);
  cache.check_integrity();
}

// CASES KV-3, page size 2: three shared tokens are one shared page.
TEST(RadixCacheTest, SharedTokensThatDoNotFillAPageDoNotMatch) {
  // [1 2|3 4|5 6]   match [1 2|3 9], lock    [1 2]* -> [3 4|5 6]
  RadixCache cache(2);
  cache.insert(Ids{1, 2, 3, 4, 5, 6}, pages({1, 2, 3}));
  const PrefixMatch match = cache.match(Ids{1, 2, 3, 9});
  EXPECT_EQ(match.handle.cached_len, 2);
  cache.lock(match.handle);
  EXPECT_EQ(cache.sizes().protected_pages, 1);
  EXPECT_EQ(sorted(cache.evict(2)), pages({2, 3}));
  cache.unlock(match.handle);
  EXPECT_EQ(cache.match(Ids{1}).handle.cached_len, 0) << "shorter than a page";
  EXPECT_EQ(cache.match(Ids{}).handle.cached_len, 0);
  EXPECT_EQ(cache.evict(1), pages({1}));
  cache.check_integrity();
}

TEST(RadixCacheTest, InsertionTakesWholePagesOnly) {
  RadixCache cache(4);
  const PrefixInsert inserted = cache.insert(Ids{1, 2, 3, 4, 5, 6, 7}, pages({9, 8}));
  EXPECT_EQ(inserted.handle.cached_len, 4);
  EXPECT_EQ(inserted.pages, pages({9}));
  EXPECT_EQ(cache.insert(Ids{1, 2, 3}, pages({})).handle.cached_len, 0);
  EXPECT_NE(error_of([&] {
              cache.insert(Ids{1, 2, 3, 4}, pages({}));
            }).find("4 tokens need 1 pages, not 0"),
            std::string::npos);
}

TEST(RadixCacheTest, EvictsTheLeastRecentlyUsedAndTheEndOfAPrefixBeforeItsBeginning) {
  // [1 2 3]  used last      evict 2    [1 2 3]     evict 1   [1 2]    evict 2   [4]
  // [4 5 6]                            [4]  used             [4]
  RadixCache cache(1);
  cache.insert(Ids{1, 2, 3}, pages({1, 2, 3}));
  cache.insert(Ids{4, 5, 6}, pages({4, 5, 6}));
  cache.match(Ids{1, 2, 3});
  EXPECT_EQ(cache.evict(2), pages({5, 6}));
  EXPECT_EQ(cache.match(Ids{4, 5, 6}).handle.cached_len, 1) << "what is left still matches";
  EXPECT_EQ(cache.evict(1), pages({3}));
  EXPECT_EQ(cache.evict(2), pages({1, 2}));
  EXPECT_EQ(cache.evict(1), pages({4}));
  cache.check_integrity();
}

TEST(RadixCacheTest, AParentThatLosesItsLastChildIsEvictedNext) {
  // [1] -> [2], [3]
  RadixCache cache(1);
  cache.insert(Ids{1, 2}, pages({1, 2}));
  cache.insert(Ids{1, 3}, pages({9, 3}));
  EXPECT_EQ(sorted(cache.evict(3)), pages({1, 2, 3}));
  cache.check_integrity();
}

TEST(RadixCacheTest, AHandleKeepsItsMeaningWhenItsNodeIsSplitUnderALock) {
  // [1 2 3 4]*   insert [1 2 8]   [1 2]* -> [3 4]*     evict 1, unlock   [1 2] -> [3 4]
  //                                      -> [8]
  RadixCache cache(1);
  const PrefixHandle whole = cache.insert(Ids{1, 2, 3, 4}, pages({1, 2, 3, 4})).handle;
  cache.lock(whole);
  cache.insert(Ids{1, 2, 8}, pages({5, 6, 8}));  // splits [1 2 3 4] at 2
  EXPECT_EQ(cache.sizes().protected_pages, 4);
  EXPECT_EQ(cache.evict(1), pages({8}));
  cache.check_integrity();
  cache.unlock(whole);
  EXPECT_EQ(cache.sizes().protected_pages, 0);
  EXPECT_EQ(cache.sizes().evictable_pages, 4);
  cache.check_integrity();
}

TEST(RadixCacheTest, StaleHandlesAndUnlocksTooManyAreErrors) {
  RadixCache cache(1);
  const PrefixHandle gone = cache.insert(Ids{1, 2}, pages({1, 2})).handle;
  cache.evict(1);
  EXPECT_NE(error_of([&] { cache.lock(gone); }).find("stale handle of 2 tokens"),
            std::string::npos);
  const PrefixHandle front = cache.match(Ids{1}).handle;
  const PrefixHandle end = cache.insert(Ids{1, 2}, pages({1, 2})).handle;
  cache.lock(end);
  EXPECT_NE(error_of([&] { cache.unlock(front); }).find("1 tokens that are not locked"),
            std::string::npos)
      << "a lock on a longer prefix is not one on this";
  cache.unlock(end);
  EXPECT_THROW(cache.unlock(end), Error);
  EXPECT_THROW(cache.unlock({}), Error) << "the root's own lock is not the caller's";
}

TEST(RadixCacheTest, ResetReturnsEveryPageUnlessSomethingIsLocked) {
  RadixCache cache(1);
  const PrefixHandle handle = cache.insert(Ids{1, 2}, pages({1, 2})).handle;
  cache.insert(Ids{3}, pages({3}));
  cache.lock(handle);
  EXPECT_NE(error_of([&] { cache.reset(); }).find("reset while 2 pages are locked"),
            std::string::npos);
  cache.unlock(handle);
  EXPECT_EQ(sorted(cache.reset()), pages({1, 2, 3}));
  EXPECT_EQ(cache.match(Ids{1, 2}).handle.cached_len, 0);
  cache.check_integrity();
}

// The oracle: one entry for each cached page, under all the tokens up to its end. No tree, no
// nodes.
class PageByPageCache {
 public:
  explicit PageByPageCache(std::size_t page_size) : page_size_(page_size) {}

  Pages match(const Ids& tokens) {
    ++now_;
    Pages found;
    for (std::size_t end = page_size_; end <= tokens.size(); end += page_size_) {
      const auto entry = entries_.find(Ids(tokens.begin(), tokens.begin() + end));
      if (entry == entries_.end()) break;
      entry->second.last_use = now_;
      found.push_back(entry->second.page);
    }
    return found;
  }
  Pages insert(const Ids& tokens, const Pages& own) {
    Pages all = match(tokens);
    for (std::size_t i = all.size(); (i + 1) * page_size_ <= tokens.size(); ++i) {
      entries_[Ids(tokens.begin(), tokens.begin() + (i + 1) * page_size_)] = {own[i], now_, 0};
      all.push_back(own[i]);
    }
    return all;
  }
  void lock(const Ids& tokens, int change) {
    for (std::size_t end = page_size_; end <= tokens.size(); end += page_size_)
      entries_.at(Ids(tokens.begin(), tokens.begin() + end)).locks += change;
  }
  Pages evict(std::int64_t count) {
    Pages evicted;
    for (; count > 0; --count) {
      auto oldest = entries_.end();
      for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        const auto next = std::next(entry);  // in lexicographic order a longer one follows directly
        const bool leaf = next == entries_.end() || !starts_with(next->first, entry->first);
        if (!leaf || entry->second.locks > 0) continue;
        if (oldest == entries_.end() || entry->second.last_use < oldest->second.last_use)
          oldest = entry;
      }
      evicted.push_back(oldest->second.page);
      entries_.erase(oldest);
    }
    return evicted;
  }
  PrefixCacheSizes sizes() const {
    PrefixCacheSizes sizes;
    for (const auto& [tokens, entry] : entries_)
      ++(entry.locks > 0 ? sizes.protected_pages : sizes.evictable_pages);
    return sizes;
  }

 private:
  struct Entry {
    PageId page;
    std::int64_t last_use;
    int locks;
  };
  static bool starts_with(const Ids& tokens, const Ids& prefix) {
    return tokens.size() > prefix.size() &&
           std::equal(prefix.begin(), prefix.end(), tokens.begin());
  }
  std::size_t page_size_;
  std::int64_t now_ = 0;
  std::map<Ids, Entry> entries_;
};

/// 120 seeds of 300 operations for each of three page sizes: 108,000.
class RadixCacheRandomTest : public testing::TestWithParam<int> {};

TEST_P(RadixCacheRandomTest, AgreesWithAPageByPageModelOnEveryCall) {
  const int page_size = GetParam();
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    testing_util::Random random(seed * 1000 + static_cast<std::uint64_t>(page_size));
    RadixCache cache(page_size);
    PageByPageCache model(static_cast<std::size_t>(page_size));
    std::vector<std::pair<PrefixHandle, Ids>> locked;
    PageAllocator allocator(2048);  // more than there are different prompts
    // Prompts of few kinds of page, so that they share beginnings; some end inside a page.
    const auto draw_tokens = [&] {
      Ids tokens;
      for (auto left = random.below(7); left > 0; --left) {
        const auto kind = static_cast<TokenId>(random.below(3));
        for (int i = 0; i < page_size; ++i) tokens.push_back(i + 1 == page_size ? kind : 5);
      }
      for (auto left = random.below(page_size); left > 0; --left) tokens.push_back(5);
      return tokens;
    };
    const auto whole_pages = [&](Ids tokens) {
      tokens.resize(tokens.size() / page_size * page_size);
      return tokens;
    };
    for (int operation = 0; operation < 300; ++operation) {
      const Ids tokens = draw_tokens();
      switch (random.below(5)) {
        case 0: {
          const PrefixMatch match = cache.match(tokens);
          ASSERT_EQ(match.pages, model.match(tokens));
          ASSERT_EQ(match.handle.cached_len, static_cast<int>(match.pages.size()) * page_size);
          if (random.below(2) == 0) {
            const Ids prefix(tokens.begin(), tokens.begin() + match.handle.cached_len);
            cache.lock(match.handle);
            model.lock(prefix, +1);
            locked.emplace_back(match.handle, prefix);
          }
          break;
        }
        case 1:
        case 2: {
          Pages own;
          allocator.allocate(static_cast<std::int64_t>(tokens.size()) / page_size, own);
          const auto known = static_cast<int>(model.match(tokens).size()) * page_size;
          cache.match(tokens);  // the model's clock went on as well
          const PrefixInsert inserted = cache.insert(tokens, own);
          ASSERT_EQ(inserted.already_cached_len, known);
          ASSERT_EQ(inserted.pages, model.insert(tokens, own));
          // The caller's copies of what was cached already go back.
          allocator.free(std::span(own).first(static_cast<std::size_t>(known / page_size)));
          if (random.below(3) == 0) {
            cache.lock(inserted.handle);
            model.lock(whole_pages(tokens), +1);
            locked.emplace_back(inserted.handle, whole_pages(tokens));
          }
          break;
        }
        case 3: {
          const auto count =
              random.between(0, std::min<std::int64_t>(8, cache.sizes().evictable_pages));
          const Pages evicted = cache.evict(count);
          ASSERT_EQ(sorted(evicted), sorted(model.evict(count)));
          allocator.free(evicted);
          break;
        }
        default: {
          if (locked.empty()) break;
          const auto at = random.below(static_cast<std::int64_t>(locked.size()));
          cache.unlock(locked[at].first);
          model.lock(locked[at].second, -1);
          locked.erase(locked.begin() + at);
        }
      }
      cache.check_integrity();
      ASSERT_EQ(cache.sizes().evictable_pages, model.sizes().evictable_pages);
      ASSERT_EQ(cache.sizes().protected_pages, model.sizes().protected_pages);
      ASSERT_EQ(allocator.num_free() + cache.sizes().total_pages(), allocator.num_pages());
    }
    allocator.check_integrity();
    for (const auto& [handle, tokens] : locked) cache.unlock(handle);
    const std::int64_t total = cache.sizes().total_pages();
    ASSERT_EQ(static_cast<std::int64_t>(cache.reset().size()), total);
    cache.check_integrity();
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RadixCacheRandomTest, testing::Values(1, 4, 16));

}  // namespace
}  // namespace minisgl
