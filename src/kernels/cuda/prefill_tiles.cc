#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/flashinfer/hopper_prefill.h"
#include "tensor/cuda/device.h"

namespace minisgl::kernels::gpu {

bool takes_prefill_tiles(Device device, std::int32_t head_dim, std::int32_t page_size) {
  return hopper_prefill_built() && (head_dim == 64 || head_dim == 128) &&
         hopper_takes_pages_of(page_size) && cuda::properties(device).compute_major == 9;
}

std::int64_t max_prefill_tiles(std::int64_t rows, std::int64_t tokens, std::int32_t head_dim) {
  return rows + tokens / hopper_tile_queries(head_dim);
}

std::int64_t prefill_tiles(std::span<const PrefillRow> rows, std::int32_t first,
                           std::int32_t head_dim, std::span<std::int32_t> tiles) {
  const std::int32_t size = hopper_tile_queries(head_dim);
  struct Tile {
    std::int32_t keys, row, index;
  };
  std::vector<Tile> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PrefillRow& row = rows[i];
    for (std::int32_t index = 0; index * size < row.queries; ++index)
      found.push_back({row.keys - row.queries + std::min(row.queries, (index + 1) * size),
                       first + static_cast<std::int32_t>(i), index});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Tile& a, const Tile& b) { return a.keys > b.keys; });
  check(2 * found.size() <= tiles.size(), "there is room for ", tiles.size() / 2,
        " tiles of queries, and there are ", found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    tiles[2 * i] = found[i].row;
    tiles[2 * i + 1] = found[i].index;
  }
  return static_cast<std::int64_t>(found.size());
}

// A build without FlashInfer's headers, or without the architecture 90a, has nothing to run.
#if defined(MINISGL_HAS_FLASHINFER) && MINISGL_HAS_HOPPER
bool hopper_prefill_built() { return true; }
#else
bool hopper_prefill_built() { return false; }
void hopper_prefill_64(const HopperPrefill& /*job*/, cudaStream_t /*stream*/) {
  check(false, "this build has no code of FlashInfer's for Hopper");
}
void hopper_prefill_128(const HopperPrefill& /*job*/, cudaStream_t /*stream*/) {
  check(false, "this build has no code of FlashInfer's for Hopper");
}
#endif

}  // namespace minisgl::kernels::gpu
