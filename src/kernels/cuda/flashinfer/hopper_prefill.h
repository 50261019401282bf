// Attention of many queries on Hopper: FlashInfer's warp-specialised kernel with a loader and a
// scheduler of ours, which read our page table. For files below folders named cuda/.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace minisgl::kernels::gpu {

struct AttentionArgs;

/// What the kernel computes in one go: tile `index` of the queries of sequence `seq`, for one head.
/// An array of these is i32 [tiles, 2].
struct PrefillTile {
  std::int32_t seq = 0;
  std::int32_t index = 0;
};

struct HopperPrefill {
  const AttentionArgs& args;  ///< sequences, and of those the ones that `tiles` names
  const int* page_offsets;    ///< where a sequence's pages begin in page_table; null: in its row
  const PrefillTile* tiles;   ///< device; those that see most come first
  std::int32_t num_tiles;     ///< at least 1
  std::int32_t num_tokens;    ///< rows of q and out
  std::int32_t num_slots;     ///< of the KV pool
  std::int32_t num_multiprocessors;
  std::uint32_t* counter;  ///< device; zero, and again when the kernel has ended
};

/// Enqueues it; args.head_dim is 64 or 128. bf16; no window, no cap.
/// Throws Error if it cannot be launched.
void hopper_prefill_64(const HopperPrefill& job, cudaStream_t stream);
void hopper_prefill_128(const HopperPrefill& job, cudaStream_t stream);

/// False if this build has no code of FlashInfer's or none for Hopper's own instructions.
bool hopper_prefill_built();

/// Queries of a tile.
constexpr std::int32_t hopper_tile_queries(std::int32_t head_dim) {
  return head_dim == 64 ? 192 : 128;
}

/// Pages that the loader can bring in whole boxes.
constexpr bool hopper_takes_pages_of(std::int32_t page_size) {
  return page_size % 128 == 0 || page_size == 8 || page_size == 16 || page_size == 32 ||
         page_size == 64;
}

}  // namespace minisgl::kernels::gpu
