// Which prefixes of earlier prompts still lie in the KV pool, and where.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "core/request.h"

namespace minisgl {

/// What PrefixCache::match() found.
struct PrefixMatch {
  PrefixHandle handle;
  std::vector<PageId> pages;  ///< handle.cached_len / page_size pages, in order of position
};

/// What PrefixCache::insert() did.
struct PrefixInsert {
  std::int32_t already_cached_len = 0;  ///< so many tokens were there before: the caller's pages of
                                        ///< them are duplicates and stay the caller's
  PrefixHandle handle;                  ///< all that is there now; not locked
  std::vector<PageId> pages;  ///< the cache's own pages of handle.cached_len tokens: the caller's
                              ///< where it took them, others where it had its own
};

/// In pages, so that free + evictable + protected + held by requests alone = pool.
struct PrefixCacheSizes {
  std::int64_t evictable_pages = 0;
  std::int64_t protected_pages = 0;
  std::int64_t total_pages() const { return evictable_pages + protected_pages; }
};

/// Owns pages of the KV pool and knows which tokens they hold. Everything is in whole pages:
/// lengths are rounded down to a multiple of the page size.
///
/// Decisions depend on the calls made and their order only (no clock, no addresses, no hash order),
/// so every rank makes the same ones. Not thread-safe.
class PrefixCache {
 public:
  PrefixCache() = default;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  virtual ~PrefixCache() = default;

  /// The longest cached prefix of `tokens`. Counts as a use of it. Changes no content, but may
  /// divide an entry in two, so that the handle ends where the match ends. The handle is good until
  /// the next insert() or evict(), unless it is locked.
  virtual PrefixMatch match(std::span<const TokenId> tokens) = 0;

  /// Keeps what `handle` stands for, from the first token to the last, from eviction until unlock()
  /// is called as often. Throws Error if the handle is stale.
  virtual void lock(PrefixHandle handle) = 0;
  /// Throws Error if `handle` is not locked.
  virtual void unlock(PrefixHandle handle) = 0;

  /// Adds `tokens`, whose keys and values lie in `pages` (at least as many as the whole pages of
  /// tokens; more are ignored), and takes over the pages of what was not there yet. The new part is
  /// evictable until locked. Counts as a use. Throws Error when there are too few pages.
  virtual PrefixInsert insert(std::span<const TokenId> tokens, std::span<const PageId> pages) = 0;

  /// Forgets the `num_pages` pages used longest ago (ends of prefixes before their beginnings) and
  /// returns them, exactly so many. Throws Error, and forgets nothing, if fewer are evictable.
  virtual std::vector<PageId> evict(std::int64_t num_pages) = 0;

  /// Forgets everything and returns all pages. Throws Error if anything is locked.
  virtual std::vector<PageId> reset() = 0;

  virtual PrefixCacheSizes sizes() const = 0;

  /// Every page that the cache owns, in no particular order.
  virtual std::vector<PageId> pages() const = 0;

  /// Throws Error naming the invariant that does not hold. O(size of the cache).
  virtual void check_integrity() const = 0;
};

/// Names that make_prefix_cache() knows, in alphabetical order.
std::span<const std::string_view> prefix_cache_names();

/// Throws Error listing the names if `name` is none of them.
std::unique_ptr<PrefixCache> make_prefix_cache(std::string_view name, std::int32_t page_size);

}  // namespace minisgl
