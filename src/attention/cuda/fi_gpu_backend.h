// The backend `fi` on a GPU: FlashInfer's ragged arguments, plans and kernels.

#pragma once

#include <map>
#include <optional>
#include <vector>

#include "attention/argument_pool.h"
#include "attention/backend.h"
#include "attention/ragged_arrays.h"
#include "kernels/cuda/flashinfer/ragged.h"

namespace minisgl {

/// Arguments of one step; the views lie in the block that the metadata holds.
struct FiGpuMetadata final : AttentionMetadata, RaggedArrays {
  explicit FiGpuMetadata(ArgumentPool::Lease block) : block(std::move(block)) {}
  /// Of arrays that somebody else owns.
  FiGpuMetadata() : block(nullptr, nullptr) {}

  kernels::gpu::RaggedPlan plan;  ///< of the first rows, or of all
  TensorView plan_ints;           ///< the device's part of the plan
  /// The rows that are not in the plan, or no memory: PagedAttentionArgs::prefill_tiles.
  TensorView prefill_tiles;
  TensorView cache_seqlens;  ///< [rows], device_len; for prefill_tiles alone
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  ArgumentPool::Lease block;
};

/// Prompts run on FlashInfer's kernel for Hopper where that can be and pays
/// (gpu::takes_prefill_tiles), all else as FlashInfer's plans say.
class FiGpuBackend final : public AttentionBackend {
 public:
  /// Throws Error if the build has no code of FlashInfer's, heads are not of 64 or 128 numbers, or
  /// there is a window or a cap.
  explicit FiGpuBackend(const AttentionShape& shape);
  std::string_view name() const override { return "fi"; }
  /// Returns FiGpuMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

  bool supports_graphs() const override { return true; }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                          std::int64_t max_seq_len_tokens) override;
  /// Returns FiGpuMetadata: every row has one key, in page 0 until the first prepare_for_replay().
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream) override;
  /// fi.kv_indptr, fi.kv_indices, fi.kv_last_page_len, fi.plan; constant: fi.qo_indptr.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override;
  /// The plan that prepare_metadata() made for this step is copied with the other arrays: plans of
  /// steps of one query each are fixed for a number of rows.
  void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                          CaptureWriter& writer, Stream& stream) override;

 private:
  /// The arrays that graphs read. A plan's part for the device lies in the block that its graph
  /// keeps.
  struct Captured {
    std::int64_t max_seq_len_tokens = 0;
    CapturedRaggedArrays arrays;
    std::map<std::int32_t, FiGpuMetadata> metadata;  // by number of rows
  };
  const FiGpuMetadata& captured_metadata(std::int32_t batch_size) const;
  /// Makes metadata.plan and metadata.plan_ints for these rows, the first ones.
  void add_plan(std::span<std::int32_t> qo_indptr, std::span<std::int32_t> kv_indptr,
                FiGpuMetadata& metadata, Stream& stream);

  AttentionShape shape_;
  kernels::gpu::RaggedShape ragged_;
  std::shared_ptr<ArgumentPool> pool_;
  std::optional<bool> has_tiles_;  // once the GPU was asked
  Captured captured_;
};

}  // namespace minisgl
