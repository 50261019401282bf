// The backend `trtllm`: the arguments of TensorRT-LLM's fused multi-head attention.

#pragma once

#include <map>
#include <optional>

#include "attention/argument_pool.h"
#include "attention/backend.h"

namespace minisgl {

/// Arguments of one step. All arrays are i32; the views lie in the block that the metadata holds.
/// Source: mini-sglang attention/trtllm.py, TRTLLMMetadata.
struct TrtllmMetadata final : AttentionMetadata {
  explicit TrtllmMetadata(ArgumentPool::Lease block) : block(std::move(block)) {}
  /// Of arrays that somebody else owns.
  TrtllmMetadata() : block(nullptr, nullptr) {}

  TensorView block_tables;     ///< [rows, pages of the longest row], in pages (on a GPU of 16
                               ///< tokens, whatever the pool's are); what lies behind a row's
                               ///< own pages is undefined
  TensorView seq_lens;         ///< [rows], device_len
  TensorView cum_seq_lens_q;   ///< [rows + 1], prefix sums of extend_len; the memory of
                               ///< cum_seq_lens_kv if no row has a cached prefix
  TensorView cum_seq_lens_kv;  ///< [rows + 1], prefix sums of device_len
  std::int32_t max_q_len = 0;
  std::int32_t max_kv_len = 0;
  std::int32_t num_decode = 0;  ///< on a GPU: the first rows, which compute one token each
  // Of the other rows, on a GPU.
  TensorView prefill_pages;  ///< [rows, pages of the longest row], in the pool's pages
  TensorView prefill_tiles;  ///< see PagedAttentionArgs
  ArgumentPool::Lease block;
};

/// Pages have 16, 32 or 64 tokens, as in TensorRT-LLM: see supported_page_size(). The workspace
/// that its kernels want is scratch memory of the step.
///
/// On a GPU, rows of one token run on XQA, TensorRT-LLM's kernel for them; its kernels for prompts
/// have no sources for Hopper, so those run on what `fa` uses, and the log says so.
class TrtllmBackend final : public AttentionBackend {
 public:
  /// Throws Error for other page sizes, and on a GPU for what XQA cannot do: no heads of 64 or 128
  /// numbers, more than eight query heads to a KV head, windows, a cap.
  explicit TrtllmBackend(const AttentionShape& shape);
  std::string_view name() const override { return "trtllm"; }
  /// Returns TrtllmMetadata.
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) override;
  void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) override;

  bool supports_graphs() const override { return true; }
  void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                          std::int64_t max_seq_len_tokens) override;
  /// Returns TrtllmMetadata: every row has one key, in page 0 until the first prepare_for_replay().
  const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream) override;
  /// trtllm.block_tables, trtllm.seq_lens, trtllm.cum_seq_lens_kv; constant: trtllm.cum_seq_lens_q.
  std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const override;
  /// Copies as many columns of block_tables as `live` has. Older entries beyond them stay: a row's
  /// pages are read only as far as its seq_lens goes.
  void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                          CaptureWriter& writer, Stream& stream) override;

 private:
  /// The arrays that graphs read, for the largest of them.
  struct Captured {
    std::int64_t max_seq_len_tokens = 0;
    Tensor block_tables, seq_lens, cum_seq_lens_q, cum_seq_lens_kv;
    std::map<std::int32_t, TrtllmMetadata> metadata;  // by number of rows
  };
  const TrtllmMetadata& captured_metadata(std::int32_t batch_size) const;
  void prepare_gpu();
  void forward_on_gpu(TensorView q, const TrtllmMetadata& metadata, const KvView& kv,
                      TensorView out, ForwardContext& ctx) const;

  AttentionShape shape_;
  std::int32_t table_page_size_;   // tokens of an entry of block_tables
  std::optional<bool> has_tiles_;  // once the GPU was asked
  std::shared_ptr<ArgumentPool> pool_;
  Captured captured_;
};

}  // namespace minisgl
