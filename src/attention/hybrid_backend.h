// Two backends as one: extending rows go to the first, decode rows to the second.

#pragma once

#include <map>
#include <string>

#include "attention/backend.h"

namespace minisgl {

/// Arguments of one step for either backend; the one that has no rows has null. Tokens
/// [0, num_decode_tokens) are the decode backend's.
struct HybridMetadata final : AttentionMetadata {
  std::int64_t num_decode_tokens = 0;
  const AttentionMetadata* decode = nullptr;
  const AttentionMetadata* prefill = nullptr;
  std::unique_ptr<AttentionMetadata> own_decode, own_prefill;  ///< empty in what was captured
};

/// A batch is cut at num_decode: the rows before it are the decode backend's, all after it the
/// prefill backend's, padding included. A pure decode step is the decode backend's as a whole,
/// padding included, and so are the graphs, which replay nothing else.
/// Source: mini-sglang attention/base.py HybridBackend, which has no mixed batches to cut.
class HybridBackend final : public AttentionBackend {
 public:
  HybridBackend(std::unique_ptr<AttentionBackend> prefill,
                std::unique_ptr<AttentionBackend> decode);
  /// "fa,fi"
  std::string_view name() const override { return name_; }
  /// Returns HybridMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

  bool supports_graphs() const override { return decode_->supports_graphs(); }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                          std::int64_t max_seq_len_tokens) override;
  /// Returns HybridMetadata of the decode backend's captured arguments.
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream) override;
  /// The decode backend's, with its names.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override;
  void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                          CaptureWriter& writer, Stream& stream) override;

 private:
  std::unique_ptr<AttentionMetadata> prepare_part(AttentionBackend& backend, const Batch& batch,
                                                  std::size_t begin, std::size_t end, Stream& copy);

  std::unique_ptr<AttentionBackend> prefill_;
  std::unique_ptr<AttentionBackend> decode_;
  std::string name_;
  Batch part_;                                       // of a mixed batch; kept for its memory
  std::map<std::int32_t, HybridMetadata> captured_;  // by number of rows
};

}  // namespace minisgl
