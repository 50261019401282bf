#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/math.h"
#include "kernels/cuda/flashinfer/hopper_product.h"
#include "tensor/cuda/device.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr std::size_t kMostTiles = 4;  // of one product: each costs some milliseconds to measure
constexpr std::int64_t kShortBytes = 40 << 20;  // of weights: some 10 us
constexpr std::int64_t kMeetings = 1000;  // cycles that the blocks of a split wait for each other

/// Cycles that a multiprocessor is busy with its share, by what its parts can do in a cycle: the
/// tensor cores 64 tokens x 2 rows x 16 columns, shared memory 128 bytes, which overlap, though not
/// wholly; the way to it from the L2 cache 64 bytes, to another multiprocessor 32.
std::int64_t cost_of(const Product& p, const HopperTile& tile, std::int64_t places) {
  const std::int64_t steps = std::int64_t{tile.tokens} / 64 * 4;  // of 64 tokens and 16 columns
  const std::int64_t tokens = std::min<std::int64_t>(tile.tokens, p.tokens);
  // Of 64 columns of a tile.
  const std::int64_t multiply = steps * tile.rows / 2;
  const std::int64_t memory = steps * (16 + tile.rows / 4) + tile.tokens + tile.rows;
  const std::int64_t inward = (tokens + tile.rows) * 128 / 64;
  const std::int64_t row_tiles =
      round_up<std::int64_t>(ceil_div<std::int64_t>(p.rows, tile.rows), tile.share);
  const std::int64_t blocks =
      row_tiles * ceil_div<std::int64_t>(p.tokens, tile.tokens) * tile.split;
  const std::int64_t column_tiles = ceil_div<std::int64_t>(p.cols, 64 * tile.split);
  const std::int64_t exchanged = tokens * tile.rows * 4 / tile.split * (tile.split - 1);
  return ceil_div(blocks, places) * column_tiles * std::max(multiply + memory / 2, inward) +
         (tile.split > 1 ? kMeetings + exchanged / 32 : 0);
}

}  // namespace

bool takes_product(const Product& p, const HopperTile& tile) {
  const auto aligned = [](const void* at, std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
  };
  return p.norm == nullptr && p.x_rows == nullptr && p.rows % (is_gated(p.into) ? 16 : 8) == 0 &&
         p.cols % 8 == 0 && p.x_stride % 8 == 0 && p.y_stride % 4 == 0 && aligned(p.x, 16) &&
         aligned(p.w, 16) && aligned(p.y, 8) &&
         (p.y_type == DType::kBF16 ? p.into != Into::kAdd
                                   : p.y_type == DType::kF32 && !is_gated(p.into)) &&
         ceil_div<std::int64_t>(p.cols, 64) >= tile.split;
}

std::vector<const HopperTile*> likely_tiles(const Product& p, const cuda::CudaStream& stream) {
  if (cuda::properties(stream.device()).compute_major != 9) return {};
  // A short product is over before it has read as fast as it could, unless it begins early. Few
  // tokens are the work of small_product() and cluster_product().
  const bool is_short = bytes_of(DType::kBF16, p.rows * p.cols) < kShortBytes;
  const auto fits = [&](const HopperTile& tile) {
    if (tile.resident > 1) return is_short && p.tokens > kSmallTokens;
    return p.tokens > kClusterTokens;
  };
  std::vector<std::pair<std::int64_t, const HopperTile*>> found;
  for (const auto& tiles : {hopper_tiles_64(), hopper_tiles_128(), hopper_tiles_256()})
    for (const HopperTile& tile : tiles)
      if (takes_product(p, tile) && fits(tile) &&
          round_up<std::int64_t>(p.tokens, tile.tokens) == round_up<std::int64_t>(p.tokens, 64))
        found.emplace_back(cost_of(p, tile, stream.num_multiprocessors()), &tile);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const HopperTile*> likely;
  for (const auto& [cost, tile] : found)
    if (likely.size() < kMostTiles) likely.push_back(tile);
  return likely;
}

// A build without FlashInfer's package, or without the architecture 90a, has nothing to run.
#if !defined(MINISGL_HAS_FLASHINFER) || !MINISGL_HAS_HOPPER
std::span<const HopperTile> hopper_tiles_64() { return {}; }
std::span<const HopperTile> hopper_tiles_128() { return {}; }
std::span<const HopperTile> hopper_tiles_256() { return {}; }
#endif

}  // namespace minisgl::kernels::gpu
