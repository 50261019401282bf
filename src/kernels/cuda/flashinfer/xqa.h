// XQA, TensorRT-LLM's attention of one query to a paged KV cache, on a GPU. No CUDA header is
// needed.

#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace minisgl::kernels::gpu {

/// What there are kernels for: heads of 64 and 128 numbers, up to eight query heads to a KV head.
struct XqaShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
};

/// Whether this build has XQA: it comes with FlashInfer.
bool xqa_built();

/// Tokens of a page in the page tables that xqa_decode() reads: a page of 32 or 64 is two or four
/// of those.
constexpr std::int32_t kXqaPageSize = 16;

/// Readies the kernel for `shape` on a GPU: once before the first xqa_decode(). Waits for the GPU.
/// Throws Error if there is no such kernel.
void prepare_xqa(const XqaShape& shape, Device device);

/// Bytes of workspace, whatever the number of sequences.
std::int64_t xqa_workspace_bytes(const XqaShape& shape);

/// paged_attention() with one query for each sequence: q and out [B, q_heads, head_dim] bf16,
/// contiguous; keys and values bf16; pages of kXqaPageSize; no window, no cap. Lengths and pages
/// are read on the device. Of the arguments, cu_seqlens_q and what is for prompts are not used.
/// max_seqlen_k says over how many blocks a sequence is shared out at most: equal bits need equal
/// values of it.
///
/// Keys that a query does not see are not added, but must be finite; scores that it sees must be
/// more than -1e5, which is where XQA begins to look for their maximum. Parts of a result are
/// rounded to bf16 before they are added up.
///
/// Timing   enqueued; temporary memory from `workspace` (xqa_workspace_bytes).
/// Errors   Error if shapes or types disagree, there is no such kernel, or it cannot be launched.
/// Source   FlashInfer 0.5.3, csrc/xqa/mha.cu (TensorRT-LLM's, Apache-2.0).
void xqa_decode(const PagedAttentionArgs& args, TensorView workspace, Stream& stream);

}  // namespace minisgl::kernels::gpu
