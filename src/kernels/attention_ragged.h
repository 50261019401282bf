// Attention of new tokens to a paged KV cache, in FlashInfer's arguments.

#pragma once

#include "kernels/attention_plan.h"
#include "tensor/kv_view.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// An AttentionPlanner's result on the device. Arrays may be longer than the plan: the kernel reads
/// as far as work_indptr and num_merges say.
struct AttentionPlanView {
  TensorView work_indptr;  ///< [workers + 1] i32
  TensorView work_items;   ///< [>= items, WorkItem::kNumFields] i32
  TensorView merges;       ///< [>= merges, WorkItem::kNumFields] i32
  TensorView num_merges;   ///< [1] i32
};

struct RaggedAttentionArgs {
  TensorView q;                 ///< [T, q_heads, head_dim] f32
  KvView kv;                    ///< page_size: keys of a page
  TensorView qo_indptr;         ///< [B + 1] i32: row b's queries are tokens qo[b] .. qo[b + 1]
  TensorView kv_indptr;         ///< [B + 1] i32, in PAGES: row b's pages are kv_indices[kv[b]] ..
  TensorView kv_indices;        ///< [>= kv_indptr[B]] i32: pages of all rows, one after the other
  TensorView kv_last_page_len;  ///< [B] i32: keys in the last page of each row, 1 .. page_size
  AttentionPlanView plan;       ///< for these lengths and heads, and this window or a wider one
  float scale = 0;
  std::int32_t window_tokens = 0;
  float softcap = 0;
  TensorView out;  ///< [T, q_heads, head_dim] f32
};

/// The same function as paged_attention(), bit for bit; work is shared out as the plan says.
///
/// Timing   enqueued on `stream`; temporary memory from `workspace`
///          (ragged_attention_workspace_bytes); does not allocate and does not synchronise.
/// Errors   Error if shapes or types disagree, or the workspace is too small. The contents of the
///          arrays, plan included, are not checked.
/// Source   the arguments of FlashInfer's BatchPrefill/BatchDecodeWithPagedKVCache wrappers.
void ragged_attention(const RaggedAttentionArgs& args, TensorView workspace, Stream& stream);

/// Bytes for `num_workers` workers and the states of a plan.
std::int64_t ragged_attention_workspace_bytes(std::int32_t head_dim, std::int32_t num_workers);

}  // namespace minisgl::kernels
