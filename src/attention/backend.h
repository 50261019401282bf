// Attention over a paged KV cache: arguments are made on the host once a step, kernels run once a
// layer.

#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/batch.h"
#include "core/forward.h"

namespace minisgl {

/// One attention implementation ("ref", "fa", ...). Not thread-safe: owned by one Engine.
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
};

/// `name`: "auto", "ref", "fa". Throws Error naming the known ones for any other.
std::unique_ptr<AttentionBackend> make_attention_backend(std::string_view name,
                                                         const AttentionShape& shape);

}  // namespace minisgl
