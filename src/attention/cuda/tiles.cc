#include "attention/cuda/tiles.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/attention.h"

namespace minisgl {
namespace {

/// Rows of fewer new tokens than this, on average, are no work for tiles of 128 queries. (Measured
/// on an H200: with 32 rows of 512 keys tiles are 20 % slower for 16 and for 32 tokens each and 40
/// % faster for 64; with one row of 4096 keys they are faster from 16 tokens on, by a factor of
/// 3.7.)
constexpr std::int64_t kFewestTokens = 16;

}  // namespace

bool has_prefill_tiles(const AttentionShape& shape) {
  return shape.softcap == 0 && shape.activations == DType::kBF16 &&
         shape.kv_dtype == DType::kBF16 &&
         kernels::gpu::takes_prefill_tiles(shape.device, shape.head_dim, shape.page_size);
}

std::int64_t prefill_tiles_capacity(const AttentionShape& shape) {
  return 2 * kernels::gpu::max_prefill_tiles(
                 shape.max_rows, shape.max_rows * shape.max_seq_len_tokens, shape.head_dim);
}

TensorView add_prefill_tiles(std::span<const BatchRow> rows, std::int32_t first,
                             std::int32_t head_dim, ArgumentPool::Lease& block) {
  std::vector<kernels::gpu::PrefillRow> lengths;
  std::int64_t tokens = 0;
  for (const BatchRow& row : rows) {
    lengths.push_back({row.extend_len(), row.device_len});
    tokens += row.extend_len();
  }
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  if (tokens < num_rows * kFewestTokens) return {};
  std::vector<std::int32_t> tiles(2 * kernels::gpu::max_prefill_tiles(num_rows, tokens, head_dim));
  const std::int64_t count = kernels::gpu::prefill_tiles(lengths, first, head_dim, tiles);
  const auto array = block->add({count, 2});
  std::copy_n(tiles.begin(), 2 * count, array.host.begin());
  return array.device;
}

}  // namespace minisgl
