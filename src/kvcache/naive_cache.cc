#include "kvcache/naive_cache.h"

#include "base/check.h"

namespace minisgl {
namespace {

void check_is_root(PrefixHandle handle) {
  check(handle.node == 0 && handle.cached_len == 0, "naive cache: handle of ", handle.cached_len,
        " tokens is not of this cache, which holds none");
}

}  // namespace

NaiveCache::NaiveCache(std::int32_t page_size) {
  check(page_size > 0, "naive cache: page_size is ", page_size, "; it must be at least 1");
}

PrefixMatch NaiveCache::match(std::span<const TokenId> /*tokens*/) { return {}; }
void NaiveCache::lock(PrefixHandle handle) { check_is_root(handle); }
void NaiveCache::unlock(PrefixHandle handle) { check_is_root(handle); }

PrefixInsert NaiveCache::insert(std::span<const TokenId> /*tokens*/,
                                std::span<const PageId> /*pages*/) {
  return {};
}

std::vector<PageId> NaiveCache::evict(std::int64_t num_pages) {
  check(num_pages == 0, "naive cache: ", num_pages, " pages to evict, but it holds none");
  return {};
}

std::vector<PageId> NaiveCache::reset() { return {}; }
PrefixCacheSizes NaiveCache::sizes() const { return {}; }
std::vector<PageId> NaiveCache::pages() const { return {}; }
void NaiveCache::check_integrity() const {}

}  // namespace minisgl
