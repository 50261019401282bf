// The backend `ref`: plain code, which reads the page table as the ledger writes it.

#pragma once

#include <map>

#include "attention/argument_pool.h"
#include "attention/backend.h"

namespace minisgl {

/// Arguments of one step, in token units.
struct RefMetadata final : AttentionMetadata {
  explicit RefMetadata(ArgumentPool::Lease block) : block(std::move(block)) {}
  /// Of arrays that somebody else owns.
  RefMetadata() : block(nullptr, nullptr) {}

  TensorView cu_seqlens_q;   ///< [rows + 1] i32
  TensorView cache_seqlens;  ///< [rows] i32
  TensorView page_table;     ///< [rows, max_seqlen_k] i32: locations, whatever the page size
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
  ArgumentPool::Lease block;
};

/// Slow, and on one thread: for tests and for finding out which backend is wrong. Gives
/// the bits of the other backends, from the plainest code: kernels/ref/attention_in_order.cc.
class RefBackend final : public AttentionBackend {
 public:
  explicit RefBackend(const AttentionShape& shape);
  std::string_view name() const override { return "ref"; }
  /// Returns RefMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

  /// On a CPU only, where a graph is emulated: the kernel looks at lengths on the host, and a real
  /// graph would keep those of its capture.
  bool supports_graphs() const override { return shape_.device.is_cpu(); }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                          std::int64_t max_seq_len_tokens) override;
  /// Returns RefMetadata: every row has one key, at location 0 until the first
  /// prepare_for_replay().
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream) override;
  /// ref.cache_seqlens, ref.page_table; constant: ref.cu_seqlens_q.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override;
  /// Copies as many columns of the page table as `live` has; older entries beyond them are not
  /// read.
  void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                          CaptureWriter& writer, Stream& stream) override;

 private:
  /// The arrays that graphs read, for the largest of them; a smaller one reads their beginnings.
  struct Captured {
    std::int64_t max_seq_len_tokens = 0;
    Tensor cu_seqlens_q;                           // [max_rows + 1] i32: 0, 1, 2, ...
    Tensor cache_seqlens;                          // [max_rows] i32
    Tensor page_table;                             // [max_rows, max_seq_len_tokens] i32
    std::map<std::int32_t, RefMetadata> metadata;  // by number of rows
  };
  const RefMetadata& captured_metadata(std::int32_t batch_size) const;

  AttentionShape shape_;
  std::shared_ptr<ArgumentPool> pool_;
  Captured captured_;
};

}  // namespace minisgl
