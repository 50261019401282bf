// Prompts in tiles, for FlashInfer's kernel for Hopper: what the backends for GPUs share.

#pragma once

#include <cstdint>
#include <span>

#include "attention/argument_pool.h"
#include "attention/backend.h"

namespace minisgl {

/// Whether this GPU, build and shape have the kernel; whether a step uses it, its rows decide.
bool has_prefill_tiles(const AttentionShape& shape);

/// int32s that add_prefill_tiles() may add to a block.
std::int64_t prefill_tiles_capacity(const AttentionShape& shape);

/// The tiles of `rows`, the first of which is row `first` of the step, as an array of `block`; no
/// memory where rows are so short that tiles do not pay.
TensorView add_prefill_tiles(std::span<const BatchRow> rows, std::int32_t first,
                             std::int32_t head_dim, ArgumentPool::Lease& block);

}  // namespace minisgl
