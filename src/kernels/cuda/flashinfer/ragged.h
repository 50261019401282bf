// FlashInfer's attention in its own arguments, on a GPU: plans that the host makes for a step, and
// the kernels that follow them. No CUDA header is needed.

#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/kv_view.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels::gpu {

/// Whether this build has FlashInfer's code.
bool ragged_attention_built();

struct RaggedShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;  ///< 64 or 128
  std::int32_t page_size = 1;
};

/// Which kernel runs and how the work is shared out over its blocks: numbers of the host's and an
/// array of i32 for the device.
struct RaggedPlan {
  /// kDecode: FlashInfer's kernel without tensor cores, for one query each and up to three query
  /// heads to a KV head. kPrefill: FlashAttention-2's shape, for anything.
  enum class Kernel : std::uint8_t { kNone, kDecode, kPrefill };
  Kernel kernel = Kernel::kNone;
  std::int32_t num_rows = 0;
  std::array<std::int64_t, 15> fields{};  ///< FlashInfer's DecodePlanInfo or PrefillPlanInfo
  bool operator==(const RaggedPlan&) const = default;
};

/// i32s that a plan of these may need, and bytes of workspace that its kernel may.
std::int64_t ragged_plan_ints(const RaggedShape& shape, std::int64_t rows, std::int64_t tokens);
std::int64_t ragged_workspace_bytes(const RaggedShape& shape, std::int64_t rows);

/// Plans for rows of qo_indptr[i + 1] - qo_indptr[i] queries and kv_indptr[i + 1] - kv_indptr[i]
/// pages. The device's part is written to `host` (pinned, as long as `device`) and its copy to
/// `device` enqueued; `host` must stay until that was reached.
///
/// `fixed`: the plan's numbers depend on the number of rows alone, as long as each has one query;
/// so a graph that was captured with one such plan can follow another, whose array is copied to the
/// place of the first's.
/// Errors   Error in FlashInfer's words.
/// Source   FlashInfer 0.5.3, attention/scheduler.cuh, DecodePlan and PrefillPlan.
RaggedPlan plan_ragged_attention(const RaggedShape& shape, std::span<std::int32_t> qo_indptr,
                                 std::span<std::int32_t> kv_indptr, bool fixed,
                                 std::span<std::int32_t> host, TensorView device, Stream& stream);

struct RaggedArgs {
  TensorView q;                 ///< [T, q_heads, head_dim] bf16; heads contiguous
  KvView kv;                    ///< bf16
  TensorView qo_indptr;         ///< [B + 1] i32
  TensorView kv_indptr;         ///< [B + 1] i32, in pages
  TensorView kv_indices;        ///< [>= kv_indptr[B]] i32
  TensorView kv_last_page_len;  ///< [B] i32
  RaggedPlan plan;
  TensorView plan_ints;  ///< the device's part
  float scale = 0;
  TensorView out;  ///< [T, q_heads, head_dim] bf16, contiguous
};

/// Causal attention as paged_attention() defines it, without a window and without a cap.
/// Keys that a query does not see are not added, but must be finite; scores that a query sees must
/// be more than -5e4 before they are scaled, which is what FlashInfer puts in place of the others.
///
/// Timing   enqueued; temporary memory from `workspace` (ragged_workspace_bytes).
/// Errors   Error if shapes or types disagree, or it cannot be launched.
void ragged_attention(const RaggedArgs& args, TensorView workspace, Stream& stream);

/// The same for the rows that `tiles` names (prefill_tiles() of kernels/cuda/attention.h), on
/// FlashInfer's kernel for Hopper; args.plan is not used. `cache_seqlens` [B] i32: keys of each
/// row.
/// Timing   enqueued. Errors   as above.
void ragged_prefill(const RaggedArgs& args, TensorView tiles, TensorView cache_seqlens,
                    Stream& stream);

}  // namespace minisgl::kernels::gpu
