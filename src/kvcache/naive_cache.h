#pragma once

#include "kvcache/prefix_cache.h"

namespace minisgl {

/// The prefix cache that keeps nothing: every prompt is computed. For comparison and debugging.
class NaiveCache final : public PrefixCache {
 public:
  explicit NaiveCache(std::int32_t page_size);

  PrefixMatch match(std::span<const TokenId> tokens) override;
  void lock(PrefixHandle handle) override;
  void unlock(PrefixHandle handle) override;
  PrefixInsert insert(std::span<const TokenId> tokens, std::span<const PageId> pages) override;
  std::vector<PageId> evict(std::int64_t num_pages) override;
  std::vector<PageId> reset() override;
  PrefixCacheSizes sizes() const override;
  std::vector<PageId> pages() const override;
  void check_integrity() const override;
};

}  // namespace minisgl
