// Gives requests their pages: from the prefix cache, from the free list, or by eviction.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/page_table.h"
#include "core/request.h"
#include "kvcache/page_allocator.h"
#include "kvcache/prefix_cache.h"

namespace minisgl {

struct CacheManagerConfig {
  std::int32_t num_pages = 0;
  std::int32_t page_size = 1;    ///< tokens
  std::int32_t max_rows = 0;     ///< requests that run at once
  std::int32_t max_seq_len = 0;  ///< tokens of prompt and answer together
  std::string prefix_cache = "radix";
};

/// Owns the page table, the free list and the prefix cache.
///
/// A request holds the pages of its tokens [0, cached_len): those of [0, prefix.cached_len) belong
/// to the prefix cache and are locked, the others are the request's own. Its row of the page table
/// names both. A request is admitted only if the pool has room for all that it may ever need,
/// counted in whole pages, so allocate() never fails.
///
/// Not thread-safe. Invariants, which check_integrity() verifies:
///  1. Every page has one owner: the free list, the prefix cache, or one request.
///  2. A request's first prefix.cached_len / page_size pages are pages of the prefix cache.
///  3. The dummy page has no owner and is in no request's row.
///  4. Without requests nothing is locked.
///
/// Source: mini-sglang scheduler/cache.py, scheduler/prefill.py.
class CacheManager {
 public:
  explicit CacheManager(const CacheManagerConfig& config);

  const PageTable& page_table() const { return page_table_; }
  std::int32_t page_size() const { return page_size_; }
  std::int64_t num_pages() const { return allocator_.num_pages(); }
  std::int64_t free_pages() const { return allocator_.num_free(); }
  PrefixCacheSizes cached() const { return prefix_cache_->sizes(); }

  /// Free pages and those that eviction would free.
  std::int64_t available_pages() const;

  /// Pages that an admitted request may still ask for. Its last token's keys and values are never
  /// computed, so it needs room for max_device_len - 1 tokens.
  std::int64_t pages_to_come(const Request& request) const;

  /// Finds the longest cached prefix of all but the last token (at least one token must be computed
  /// to have logits; all, if the prompt's log-probabilities are wanted), locks it and enters it in
  /// the request's row. False, and nothing has changed,
  /// if the pages that the request then still needs and `reserved_pages` for others do not fit.
  /// `request.row` must be set.
  bool admit(Request& request, std::int64_t reserved_pages);

  /// Frees every cached page that is not locked.
  void flush();

  /// Makes room for the tokens [cached_len, device_len) of all `requests`, evicting as needed, and
  /// enters their pages in the rows. Throws Error if the pool is too small: more was asked for than
  /// was reserved.
  void allocate(std::span<Request* const> requests);

  /// Offers the first `computed_tokens` of a running request to the prefix cache. Where the cache
  /// has these tokens already, the request's row is rewritten to the cache's pages before the
  /// duplicates are freed: nobody reads a freed page.
  void cache_prefix(Request& request, std::int32_t computed_tokens);

  /// The end of a request: what was computed is left to the prefix cache, the rest is freed, its
  /// lock is given back. No step that reads the request's row may be in flight.
  void release(Request& request);

  /// Throws Error naming the invariant that does not hold; `requests` are all that were admitted
  /// and not released. O(pool).
  void check_integrity(std::span<const Request* const> requests) const;

 private:
  std::int64_t pages_held(const Request& request) const;
  PageId page_at(const Request& request, std::int64_t index) const;
  void set_page(const Request& request, std::int64_t index, PageId page);

  std::int32_t page_size_;
  PageAllocator allocator_;
  std::unique_ptr<PrefixCache> prefix_cache_;
  PageTable page_table_;
  std::vector<PageId> scratch_;
};

}  // namespace minisgl
