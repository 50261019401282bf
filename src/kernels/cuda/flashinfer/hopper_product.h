// Products of some dozens to some hundreds of tokens by Hopper's own instructions, built with the
// CUTLASS headers that FlashInfer's package carries. For files below folders named cuda/.

#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "kernels/cuda/linear.h"

namespace minisgl::kernels::gpu {

/// A way to cut a product into tiles that the kernel is built for.
struct HopperTile {
  int tokens, rows;  ///< of a tile, which a block computes
  int split;         ///< blocks of a cluster that have a part of the columns each
  int share;         ///< blocks of a cluster that have the same tokens and columns
  int resident;      ///< blocks that have room on a multiprocessor
  /// Computes a product that takes_product() says it can, its bias and what becomes of it included.
  /// Enqueues one kernel, which begins while the one before it ends. The order of the sums depends
  /// on the tile alone.
  void (*run)(const Product& product, cudaStream_t stream);
};

/// Those of 64, 128 and more tokens; none if this build has no code for Hopper's own
/// instructions.
std::span<const HopperTile> hopper_tiles_64();
std::span<const HopperTile> hopper_tiles_128();
std::span<const HopperTile> hopper_tiles_256();

/// Whether products can be cut into this tile: no norm, rows and addresses that TMA and wide stores
/// can take.
bool takes_product(const Product& product, const HopperTile& tile);

/// The few tiles that are worth measuring, for a GPU that is a Hopper; else none. For few tokens
/// those that leave room for the kernels before and after them.
std::vector<const HopperTile*> likely_tiles(const Product& product, const cuda::CudaStream& stream);

}  // namespace minisgl::kernels::gpu
