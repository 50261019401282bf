// Attention over a paged KV cache: arguments are made on the host once a step, kernels run once a
// layer.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch.h"
#include "core/capture.h"
#include "core/forward.h"
#include "kernels/rope.h"

namespace minisgl {

/// One attention implementation ("ref", "fa", "fi", ...). Not thread-safe: owned by one Engine.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;

  /// Host. Turns the rows' lengths and page-table rows (token units) into kernel arguments and
  /// starts their upload on `copy`. Reads all of batch.rows, padding included, and does not keep
  /// references to the batch. Up to `max_steps_in_flight` results may be alive at once; a result is
  /// immutable until it is destroyed, which must not be before the step was reached.
  /// Complexity O(rows + pages touched). Throws Error if a row has device_len == 0.
  virtual std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream& copy) = 0;

  /// Device, once for each layer. K and V of the new tokens are already in ctx.kv.layer(layer).
  ///   q, out [num_tokens, q_heads, head_dim]
  /// Causal within each request. Enqueued on ctx.stream; scratch from ctx.scratch; never allocates
  /// or synchronises.
  virtual void forward(TensorView q, std::int64_t layer, TensorView out, ForwardContext& ctx) = 0;

  /// kernels::qk_norm_rope_store(rope), then forward(rope.q, layer, out, ctx). A backend that can
  /// does both at once, and need not write rope.q.
  virtual void forward_with_rope(const kernels::RopeStoreArgs& rope, std::int64_t layer,
                                 TensorView out, ForwardContext& ctx);

  /// Graphs: fixed addresses for the arguments of decode steps. Call order: init_capture_graph
  /// once; prepare_for_capture for each captured size, largest first; prepare_for_replay before
  /// every replay. A backend that cannot be captured keeps these and is never asked.
  virtual bool supports_graphs() const { return false; }

  /// Allocates the fixed buffers; `batch_sizes` (rows, ascending) and max_seq_len bound them.
  virtual void init_capture_graph(std::span<const std::int32_t> batch_sizes,
                                  std::int64_t max_seq_len_tokens);

  /// Metadata of `batch_size` decode rows in the fixed buffers, each row one token long and at the
  /// dummy page. Lives as long as the backend: a graph reads it at every replay.
  virtual const AttentionMetadata& prepare_for_capture(std::int32_t batch_size, Stream& stream);

  /// All that the captured metadata of this size consists of.
  virtual std::vector<CapturedBuffer> captured_buffers(std::int32_t batch_size) const;

  /// Copies `live`, which prepare_metadata() made of this step's batch_size rows, into the fixed
  /// buffers. Enqueued through `writer`; allocates nothing.
  virtual void prepare_for_replay(std::int32_t batch_size, const AttentionMetadata& live,
                                  CaptureWriter& writer, Stream& stream);
};

/// What a backend must know of the model and the pool.
struct AttentionShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  float scale = 0;
  std::int32_t page_size = 1;
  std::int64_t max_seq_len_tokens = 0;
  std::int32_t max_rows = 0;  ///< rows of a batch, padding included
  Device device;
  std::int32_t sliding_window = 0;  ///< tokens that a query sees at most, the last ones; 0: all
  float softcap = 0;                ///< logits become softcap * tanh(logit / softcap); 0: off
  /// The window of each layer, in place of sliding_window; empty: that one in all layers.
  std::vector<std::int32_t> layer_windows = {};

  std::int32_t window_of(std::int64_t layer) const;
  /// Of all layers; 0 if one of them sees everything.
  std::int32_t widest_window() const;
};

/// `name`: "auto", one of attention_backend_names(), or "prefill,decode" of two of them. The same
/// name twice is that backend, with a warning. Throws Error naming the known ones for any other.
std::unique_ptr<AttentionBackend> make_attention_backend(std::string_view name,
                                                         const AttentionShape& shape);

/// "ref, fa, fi, trtllm"
std::string attention_backend_names();

/// The page size (tokens) to plan the KV pool with: `page_size`, or 64 with a warning if `backend`
/// (as for make_attention_backend) is or contains trtllm and page_size is not 16, 32 or 64.
std::int32_t supported_page_size(std::string_view backend, std::int32_t page_size);

}  // namespace minisgl
