// Attention on a GPU. See kernels/attention.h for the arguments; no CUDA header is needed.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/rope.h"

namespace minisgl::kernels::gpu {

/// paged_attention() with q and out bf16. Lengths and pages are read on the device: nothing but
/// the shapes, max_seqlen_q and max_seqlen_k is part of a captured graph. Rows of one query each
/// (the first num_decode, or all if max_seqlen_q is 1) share long contexts out over blocks. The
/// others run on FlashInfer's kernel for Hopper if there are prefill_tiles, else on one of ours;
/// where heads are not of 64 or 128 numbers, more than 16 query heads share a KV head or keys and
/// values are not bf16, the plain kernel runs.
///
/// Keys that a query does not see are not added, but must be finite.
/// Timing   enqueued; temporary memory from `workspace` (paged_attention_workspace_bytes).
void paged_attention(const PagedAttentionArgs& args, TensorView workspace, Stream& stream);

/// qk_norm_rope_store() and then paged_attention() in one kernel, with the same results: for few
/// rows with one query each, where a kernel more costs more than what it does. `args`.q is not
/// read. Whether it takes such arguments: takes_rope().
void paged_attention_with_rope(const PagedAttentionArgs& args, const RopeStoreArgs& rope,
                               TensorView workspace, Stream& stream);
bool takes_rope(const PagedAttentionArgs& args, const RopeStoreArgs& rope);

/// For any step.
std::int64_t paged_attention_workspace_bytes(std::int32_t q_heads, std::int32_t kv_heads,
                                             std::int32_t head_dim);

/// Queries and keys of a row.
struct PrefillRow {
  std::int32_t queries = 0;
  std::int32_t keys = 0;
};

/// Whether paged_attention() takes prefill_tiles: on a GPU of compute capability 9, in a build with
/// FlashInfer's headers, for heads of 64 or 128, pages of 8, 16, 32, 64 or a multiple of 128, no
/// window and no cap.
bool takes_prefill_tiles(Device device, std::int32_t head_dim, std::int32_t page_size);

/// PagedAttentionArgs::prefill_tiles of the rows from `first` on, for heads of `head_dim`: (row,
/// tile of its queries) pairs, those that see most keys first. `tiles` has room for
/// max_prefill_tiles(); returns how many there are.
std::int64_t prefill_tiles(std::span<const PrefillRow> rows, std::int32_t first,
                           std::int32_t head_dim, std::span<std::int32_t> tiles);
std::int64_t max_prefill_tiles(std::int64_t rows, std::int64_t tokens, std::int32_t head_dim);

/// The same function from the plainest code, for any shape with head_dim up to 256: one query head
/// after the other, one key after the other, f32. q, out, keys and values are bf16 or f32.
void paged_attention_plain(const PagedAttentionArgs& args, Stream& stream);

}  // namespace minisgl::kernels::gpu
