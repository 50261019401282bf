#include "attention/arguments.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/ops.h"

namespace minisgl {

void fill_pages(std::span<const TokenLoc> locs, std::int32_t page_size,
                std::span<std::int32_t> pages) {
  if (page_size == 1) {
    std::copy_n(locs.begin(), pages.size(), pages.begin());
    return;
  }
  bool aligned = true;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const TokenLoc loc = locs[i * page_size];
    pages[i] = loc / page_size;
    aligned &= pages[i] * page_size == loc;
  }
  check(aligned,
        "a row of the page table has a page that does not begin at a multiple of page_size ",
        page_size);
}

void fill_ascending(TensorView view, std::int32_t first, std::int32_t step, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu())
      return kernels::gpu::fill_ascending(view.reshape({view.numel()}), first, step, stream);
  as_cpu(stream).run([=](ThreadPool&) {
    std::int32_t value = first;
    auto* values = view.as<std::int32_t>();
    for (std::int64_t i = 0; i < view.numel(); ++i, value += step) values[i] = value;
  });
}

}  // namespace minisgl
