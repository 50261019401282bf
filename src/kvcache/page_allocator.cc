#include "kvcache/page_allocator.h"

#include "base/check.h"

namespace minisgl {

PageAllocator::PageAllocator(std::int32_t num_pages) {
  check(num_pages > 0, "page allocator: num_pages is ", num_pages, "; it must be at least 1");
  is_free_.assign(static_cast<std::size_t>(num_pages), 1);
  stack_.reserve(static_cast<std::size_t>(num_pages));
  for (std::int32_t page = num_pages - 1; page >= 0; --page) stack_.push_back({page});
}

bool PageAllocator::is_free(PageId page) const {
  return page.value >= 0 && page.value < num_pages() && is_free_[page.value] != 0;
}

void PageAllocator::allocate(std::int64_t count, std::vector<PageId>& out) {
  check(count >= 0 && count <= num_free(), "page allocator: ", count, " pages wanted, ", num_free(),
        " of ", num_pages(), " free");
  for (std::int64_t i = 0; i < count; ++i) {
    const PageId page = stack_.back();
    stack_.pop_back();
    is_free_[page.value] = 0;
    out.push_back(page);
  }
}

void PageAllocator::free(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    check(page.value >= 0 && page.value < num_pages(), "page allocator: ", page.value,
          " is not a page that can be freed; pages are 0 to ", num_pages() - 1);
    check(is_free_[page.value] == 0, "page allocator: page ", page.value, " is freed twice");
    is_free_[page.value] = 1;
    stack_.push_back(page);
  }
}

void PageAllocator::check_integrity() const {
  std::vector<std::uint8_t> on_stack(is_free_.size(), 0);
  for (const PageId page : stack_) {
    check(page.value >= 0 && page.value < num_pages(), "page allocator, invariant 3: ", page.value,
          " is on the free stack of ", num_pages(), " pages");
    check(on_stack[page.value] == 0, "page allocator, invariant 1: page ", page.value,
          " is on the free stack twice");
    on_stack[page.value] = 1;
  }
  for (std::int32_t page = 0; page < num_pages(); ++page) {
    check(on_stack[page] == is_free_[page], "page allocator, invariant 2: page ", page,
          " is marked ", is_free_[page] != 0 ? "free" : "in use", " against the free stack");
  }
}

}  // namespace minisgl
