// The backend `ref`: plain code, which reads the page table as the ledger writes it.

#pragma once

#include "attention/argument_pool.h"
#include "attention/backend.h"

namespace minisgl {

/// Arguments of one step, in token units.
struct RefMetadata final : AttentionMetadata {
  explicit RefMetadata(ArgumentPool::Lease block) : block(std::move(block)) {}

  TensorView cu_seqlens_q;   ///< [rows + 1] i32
  TensorView cache_seqlens;  ///< [rows] i32
  TensorView page_table;     ///< [rows, max_seqlen_k] i32: locations, whatever the page size
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  ArgumentPool::Lease block;
};

/// Slow, on one thread, and allocates: for tests and for finding out which backend is wrong. Gives
/// the bits of the other backends, from the plainest code: kernels/ref/attention_in_order.cc.
class RefBackend final : public AttentionBackend {
 public:
  explicit RefBackend(const AttentionShape& shape);
  std::string_view name() const override { return "ref"; }
  /// Returns RefMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

 private:
  AttentionShape shape_;
  std::shared_ptr<ArgumentPool> pool_;
};

}  // namespace minisgl
