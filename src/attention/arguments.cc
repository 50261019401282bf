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

void check_capture(std::span<const std::int32_t> batch_sizes, std::int64_t max_seq_len_tokens) {
  check(!batch_sizes.empty() && batch_sizes.front() > 0 && max_seq_len_tokens > 0,
        "a graph needs at least one row and one token");
}

void check_replay(const StepSize& step, std::int32_t batch_size, std::int64_t max_seq_len_tokens) {
  check(
      step.rows == batch_size && step.max_seqlen_q == 1 && step.max_seqlen_k <= max_seq_len_tokens,
      "a step of ", step.rows, " rows, ", step.max_seqlen_q, " queries and up to ",
      step.max_seqlen_k, " keys does not fit a graph of ", batch_size, " rows, one query and ",
      max_seq_len_tokens, " keys");
}

}  // namespace minisgl
