// The backend `fa`: the arguments of flash-attention's paged interface.

#pragma once

#include <map>
#include <optional>

#include "attention/argument_pool.h"
#include "attention/backend.h"
#include "kernels/attention.h"

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
  /// Of arrays that somebody else owns.
  FaMetadata() : block(nullptr, nullptr) {}

  TensorView cu_seqlens_q;   ///< [rows + 1] i32, prefix sums of extend_len
  TensorView cu_seqlens_k;   ///< [rows + 1] i32, prefix sums of device_len
  TensorView cache_seqlens;  ///< [rows] i32, device_len
  TensorView page_table;     ///< [rows, pages of the longest row] i32, in pages; what lies behind a
                             ///< row's own pages is undefined
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  Queries queries = Queries::kExtend;
  std::int32_t num_decode = 0;  ///< the first rows, which compute one token each
  TensorView prefill_tiles;     ///< of the other rows, for a GPU: see PagedAttentionArgs
  ArgumentPool::Lease block;
};

class FaBackend final : public AttentionBackend {
 public:
  explicit FaBackend(const AttentionShape& shape);
  std::string_view name() const override { return "fa"; }
  /// Returns FaMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;
  void forward_with_rope(const kernels::RopeStoreArgs& rope, std::int64_t layer, TensorView out,
                         ForwardContext& ctx) override;

  bool supports_graphs() const override { return true; }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                          std::int64_t max_seq_len_tokens) override;
  /// Returns FaMetadata: every row has one key, in page 0 until the first prepare_for_replay().
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream) override;
  /// fa.cache_seqlens, fa.cu_seqlens_k, fa.page_table; constant: fa.cu_seqlens_q.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override;
  /// Copies as many columns of the page table as `live` has. Older entries beyond them stay: the
  /// kernel reads a row's pages only as far as its cache_seqlens goes.
  void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                          CaptureWriter& writer, Stream& stream) override;

  /// Blocks of memory for metadata: the most that were alive at once.
  std::size_t num_blocks() const { return pool_->num_blocks(); }

 private:
  /// The arrays that graphs read, for the largest of them; a smaller one reads their beginnings.
  struct Captured {
    std::int64_t max_seq_len_tokens = 0;
    Tensor cu_seqlens_q;   // [max_rows + 1] i32: 0, 1, 2, ...
    Tensor cu_seqlens_k;   // [max_rows + 1] i32
    Tensor cache_seqlens;  // [max_rows] i32
    Tensor page_table;     // [max_rows, ceil(max_seq_len_tokens / page_size)] i32
    std::map<std::int32_t, FaMetadata> metadata;  // by number of rows
  };
  kernels::PagedAttentionArgs arguments(TensorView q, std::int64_t layer, TensorView out,
                                        const ForwardContext& ctx) const;
  std::int64_t workspace_bytes(std::int64_t num_tokens, Stream& stream) const;
  const FaMetadata& captured_metadata(std::int32_t batch_size) const;

  AttentionShape shape_;
  std::shared_ptr<ArgumentPool> pool_;
  Captured captured_;
  std::optional<bool> has_tiles_;  // once the GPU was asked
};

}  // namespace minisgl
