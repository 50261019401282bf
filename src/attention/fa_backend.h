// The backend `fa`: the arguments of flash-attention's paged interface.

#pragma once

#include "attention/argument_pool.h"
#include "attention/backend.h"

namespace minisgl {

/// Arguments of one step. The views lie in the block that the metadata holds.
/// Source: mini-sglang attention/fa.py, FAMetadata.
struct FaMetadata final : AttentionMetadata {
  /// How cu_seqlens_q came to be.
  enum class Queries {
    kOneEach,   ///< every row computes one token: 0, 1, 2, ... written by the device
    kNoPrefix,  ///< no row has a cached prefix: the same memory as cu_seqlens_k
    kExtend,    ///< else: its own prefix sums
  };

  explicit FaMetadata(ArgumentPool::Lease block) : block(std::move(block)) {}

  TensorView cu_seqlens_q;   ///< [rows + 1] i32, prefix sums of extend_len
  TensorView cu_seqlens_k;   ///< [rows + 1] i32, prefix sums of device_len
  TensorView cache_seqlens;  ///< [rows] i32, device_len
  TensorView page_table;     ///< [rows, pages of the longest row] i32, in pages; what lies behind a
                             ///< row's own pages is undefined
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  Queries queries = Queries::kExtend;
  ArgumentPool::Lease block;
};

class FaBackend final : public AttentionBackend {
 public:
  explicit FaBackend(const AttentionShape& shape);
  std::string_view name() const override { return "fa"; }
  /// Returns FaMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

  /// Blocks of memory for metadata: the most that were alive at once.
  std::size_t num_blocks() const { return pool_->num_blocks(); }

 private:
  AttentionShape shape_;
  std::shared_ptr<ArgumentPool> pool_;
};

}  // namespace minisgl
