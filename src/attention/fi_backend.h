// The backend `fi`: FlashInfer's ragged arguments, and a plan.

#pragma once

#include <map>
#include <optional>
#include <vector>

#include "attention/argument_pool.h"
#include "attention/backend.h"
#include "attention/ragged_arrays.h"
#include "kernels/attention_ragged.h"

namespace minisgl {

/// Arguments of one step; the views lie in the block that the metadata holds.
/// Source: mini-sglang attention/fi.py, FIMetadata; pages of page_size where upstream makes pages
/// of one token.
struct FiMetadata final : AttentionMetadata, RaggedArrays {
  explicit FiMetadata(ArgumentPool::Lease block) : block(std::move(block)) {}
  /// Of arrays that somebody else owns.
  FiMetadata() : block(nullptr, nullptr) {}

  kernels::AttentionPlanView plan;
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  ArgumentPool::Lease block;
};

/// Long contexts are shared out by a plan that the host makes for every step: see
/// kernels/attention_plan.h. The plan has a fixed number of workers: the threads of the stream.
class FiBackend final : public AttentionBackend {
 public:
  explicit FiBackend(const AttentionShape& shape);
  std::string_view name() const override { return "fi"; }
  /// Returns FiMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

  bool supports_graphs() const override { return true; }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                          std::int64_t max_seq_len_tokens) override;
  /// Returns FiMetadata: every row has one key, in page 0 until the first prepare_for_replay().
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream) override;
  /// fi.kv_indptr, fi.kv_indices, fi.kv_last_page_len, fi.work_indptr, fi.work_items, fi.merges,
  /// fi.num_merges; constant: fi.qo_indptr.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override;
  /// The plan that prepare_metadata() made for this step is copied with the other arrays. Those
  /// whose length differs from step to step are copied as far as they go.
  void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                          CaptureWriter& writer, Stream& stream) override;

  /// Blocks of memory for metadata: the most that were alive at once.
  std::size_t num_blocks() const { return pool_->num_blocks(); }

 private:
  /// The arrays that graphs read, for the largest of them.
  struct Captured {
    std::int64_t max_seq_len_tokens = 0;
    CapturedRaggedArrays arrays;
    Tensor work_indptr, work_items, merges, num_merges;
    std::map<std::int32_t, FiMetadata> metadata;  // by number of rows
  };
  const FiMetadata& captured_metadata(std::int32_t batch_size) const;
  kernels::AttentionPlanner& planner_for(Stream& stream);
  void plan(std::span<const BatchRow> rows, Stream& stream);

  AttentionShape shape_;
  std::shared_ptr<ArgumentPool> pool_;
  std::optional<kernels::AttentionPlanner> planner_;
  std::int32_t num_workers_ = 0;  // of planner_
  std::vector<kernels::AttentionPlanRow> plan_rows_;
  Captured captured_;
};

}  // namespace minisgl
