// Attention on a GPU. See kernels/attention.h for the arguments; no CUDA header is needed.

#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace minisgl::kernels::gpu {

/// paged_attention() with q and out bf16. Lengths and pages are read on the device: nothing but
/// the shapes, max_seqlen_q and max_seqlen_k is part of a captured graph. Steps of one query each
/// (max_seqlen_q is 1) share long contexts out over blocks; where heads are not of 64 or 128
/// numbers, more than 16 query heads share a KV head or keys and values are not bf16, the plain
/// kernel runs.
///
/// Keys that a query does not see are not added, but must be finite.
/// Timing   enqueued; temporary memory from `workspace` (paged_attention_workspace_bytes).
void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream);

/// For any step of up to `max_rows` sequences.
std::int64_t paged_attention_workspace_bytes(std::int64_t max_rows, std::int32_t q_heads,
                                             std::int32_t kv_heads, std::int32_t head_dim);

/// The same function from the plainest code, for any shape with head_dim up to 256: one query head
/// after the other, one key after the other, f32. q, out, keys and values are bf16 or f32.
void paged_attention_plain(const PagedAttentionArgs& args, Stream& stream);

}  // namespace minisgl::kernels::gpu
