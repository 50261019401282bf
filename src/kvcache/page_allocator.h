// Which pages of the KV pool are free.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace minisgl {

/// Hands out pages 0 .. num_pages - 1. Page num_pages, the dummy page, is never handed out.
///
/// The page freed last is handed out first: a page that was written before is memory already and
/// perhaps in a cache, so a lightly loaded server touches few distinct pages of a large pool.
/// A new allocator hands out 0, 1, 2, ...: the order is the same on every rank.
///
/// Not thread-safe. Invariants:
///  1. a page is on the free stack at most once;
///  2. a page is marked free if and only if it is on the stack;
///  3. every page on the stack is >= 0 and < num_pages.
class PageAllocator {
 public:
  explicit PageAllocator(std::int32_t num_pages);

  std::int32_t num_pages() const { return static_cast<std::int32_t>(is_free_.size()); }
  std::int32_t num_free() const { return static_cast<std::int32_t>(stack_.size()); }
  PageId dummy_page() const { return {num_pages()}; }
  bool is_free(PageId page) const;

  /// Appends `count` pages to `out`. Throws Error naming both numbers, and takes none, when fewer
  /// are free.
  void allocate(std::int64_t count, std::vector<PageId>& out);

  /// Throws Error naming the page if one of `pages` is free already, or not a page.
  void free(std::span<const PageId> pages);

  /// Throws Error naming the invariant that does not hold.
  void check_integrity() const;

 private:
  std::vector<PageId> stack_;          // the last is handed out first
  std::vector<std::uint8_t> is_free_;  // by page
};

}  // namespace minisgl
