#include "scheduler/cache_manager.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace minisgl {

CacheManager::CacheManager(const CacheManagerConfig& config)
    : page_size_(config.page_size),
      allocator_(config.num_pages),
      prefix_cache_(make_prefix_cache(config.prefix_cache, config.page_size)),
      page_table_(config.max_rows, config.max_seq_len, config.num_pages * config.page_size) {}

std::int64_t CacheManager::available_pages() const {
  return allocator_.num_free() + prefix_cache_->sizes().evictable_pages;
}

std::int64_t CacheManager::pages_held(const Request& request) const {
  return ceil_div(request.cached_len, page_size_);
}

std::int64_t CacheManager::pages_to_come(const Request& request) const {
  return ceil_div(request.max_device_len - 1, page_size_) - pages_held(request);
}

PageId CacheManager::page_at(const Request& request, std::int64_t index) const {
  return {page_table_.row(request.row)[index * page_size_] / page_size_};
}

void CacheManager::set_page(const Request& request, std::int64_t index, PageId page) {
  const std::span<TokenLoc> row = page_table_.row(request.row);
  // The last page may reach beyond the row, whose width is the context.
  const std::int64_t begin = index * page_size_;
  const std::int64_t count = std::min<std::int64_t>(page_size_, page_table_.width() - begin);
  for (std::int64_t i = 0; i < count; ++i) {
    row[begin + i] = page.value * page_size_ + static_cast<TokenLoc>(i);
  }
}

bool CacheManager::admit(Request& request, std::int64_t reserved_pages) {
  check(request.row.value >= 0 && request.row != page_table_.dummy_row(), "cache manager: request ",
        request.id.value, " has no row");
  check(request.prompt_len > 0 && request.cached_len == 0, "cache manager: request ",
        request.id.value, " is empty or was admitted before");
  const std::span<const TokenId> tokens(request.tokens);
  // Keys and values are not enough for the log-probabilities of a prompt.
  const std::int32_t usable = request.sampling.prompt_logprobs ? 0 : request.prompt_len - 1;
  const PrefixMatch match = prefix_cache_->match(tokens.first(usable));
  prefix_cache_->lock(match.handle);
  // Only now: what was locked is not evictable any more.
  const std::int64_t needed =
      pages_to_come(request) - static_cast<std::int64_t>(match.pages.size());
  if (needed + reserved_pages > available_pages()) {
    prefix_cache_->unlock(match.handle);
    return false;
  }
  request.prefix = match.handle;
  request.cached_len = match.handle.cached_len;
  for (std::size_t i = 0; i < match.pages.size(); ++i) {
    set_page(request, static_cast<std::int64_t>(i), match.pages[i]);
  }
  return true;
}

void CacheManager::flush() {
  allocator_.free(prefix_cache_->evict(prefix_cache_->sizes().evictable_pages));
}

void CacheManager::allocate(std::span<Request* const> requests) {
  std::int64_t wanted = 0;
  for (const Request* request : requests) {
    wanted += ceil_div(request->device_len, page_size_) - pages_held(*request);
  }
  if (wanted > allocator_.num_free()) {
    allocator_.free(prefix_cache_->evict(wanted - allocator_.num_free()));
  }
  scratch_.clear();
  allocator_.allocate(wanted, scratch_);
  std::size_t next = 0;
  for (const Request* request : requests) {
    const std::int64_t end = ceil_div(request->device_len, page_size_);
    for (std::int64_t i = pages_held(*request); i < end; ++i)
      set_page(*request, i, scratch_[next++]);
  }
}

void CacheManager::cache_prefix(Request& request, std::int32_t computed_tokens) {
  check(computed_tokens <= request.cached_len, "cache manager: request ", request.id.value, " has ",
        request.cached_len, " computed tokens, not ", computed_tokens);
  const std::int64_t num_pages = computed_tokens / page_size_;
  scratch_.clear();
  for (std::int64_t i = 0; i < num_pages; ++i) scratch_.push_back(page_at(request, i));
  const std::span<const TokenId> tokens(request.tokens);
  const PrefixInsert inserted = prefix_cache_->insert(tokens.first(computed_tokens), scratch_);

  const std::int64_t begin = request.prefix.cached_len / page_size_;
  const std::int64_t end = inserted.already_cached_len / page_size_;
  std::vector<PageId> duplicates;
  for (std::int64_t i = begin; i < end; ++i) {
    duplicates.push_back(scratch_[i]);
    set_page(request, i, inserted.pages[i]);
  }
  // The new lock first: the way to it must not be evictable for a moment.
  prefix_cache_->lock(inserted.handle);
  prefix_cache_->unlock(request.prefix);
  request.prefix = inserted.handle;
  allocator_.free(duplicates);
}

void CacheManager::release(Request& request) {
  // A step launched before the end was known may have computed a token more than the host knows.
  cache_prefix(request,
               std::min(request.cached_len, static_cast<std::int32_t>(request.tokens.size())));
  scratch_.clear();
  for (std::int64_t i = request.prefix.cached_len / page_size_; i < pages_held(request); ++i) {
    scratch_.push_back(page_at(request, i));
  }
  allocator_.free(scratch_);
  prefix_cache_->unlock(request.prefix);
  request.prefix = {};
  request.cached_len = 0;
}

void CacheManager::check_integrity(std::span<const Request* const> requests) const {
  allocator_.check_integrity();
  prefix_cache_->check_integrity();
  const auto num_pages = static_cast<std::size_t>(allocator_.num_pages());
  std::vector<std::int32_t> owners(num_pages, 0);
  std::vector<std::uint8_t> cached(num_pages, 0);
  const auto own = [&](PageId page, const char* who) {
    check(page.value >= 0 && page.value < allocator_.num_pages(),
          "cache manager, invariant 3: ", who, " has page ", page.value, " of ", num_pages);
    check(++owners[page.value] == 1 && !allocator_.is_free(page),
          "cache manager, invariant 1: page ", page.value, " of ", who, " has another owner");
  };
  for (const PageId page : prefix_cache_->pages()) {
    own(page, "the prefix cache");
    cached[page.value] = 1;
  }
  for (const Request* request : requests) {
    const std::int64_t shared = request->prefix.cached_len / page_size_;
    for (std::int64_t i = 0; i < pages_held(*request); ++i) {
      const PageId page = page_at(*request, i);
      if (i >= shared) {
        own(page, "a request");
        continue;
      }
      check(page.value >= 0 && page.value < allocator_.num_pages() && cached[page.value] != 0,
            "cache manager, invariant 2: page ", page.value, " of request ", request->id.value,
            " is not in the prefix cache");
    }
  }
  std::int64_t owned = 0;
  for (const std::int32_t count : owners) owned += count;
  check(owned + allocator_.num_free() == allocator_.num_pages(),
        "cache manager, invariant 1: ", allocator_.num_free(), " pages free, ", owned, " owned, ",
        num_pages, " in all");
  const std::int64_t locked = prefix_cache_->sizes().protected_pages;
  check(!requests.empty() || locked == 0, "cache manager, invariant 4: ", locked,
        " pages are locked, but there is no request");
}

}  // namespace minisgl
