// Everything that a layer may need besides its weights and its input. There are no globals.

#pragma once

#include <cstdint>
#include <functional>

#include "core/batch.h"
#include "tensor/arena.h"
#include "tensor/kv_view.h"
#include "tensor/stream.h"

namespace minisgl {

class AttentionBackend;
class Communicator;

/// Arithmetic of a forward pass.
enum class Compute : std::uint8_t {
  kExact,  ///< f32 throughout
  kBf16,   ///< what enters a product with weights is rounded to bf16, and so is the KV cache
};

/// Tokens of a step whose logits are looked at and not kept, besides inputs.logit_rows: a prompt's.
struct ScoredTokens {
  TensorView rows;    ///< [N] i32: which tokens of the step
  TensorView logits;  ///< [slice, vocab] f32: room for so many at a time
  /// Called for one slice after the other, with the logits of rows [begin, begin + n), which the
  /// stream will have made by then: what it enqueues comes after them and before the next slice.
  std::function<void(std::int64_t begin, TensorView logits)> take;
};

/// `inputs` and `metadata` are pointers (never null while a step runs) because a replay points them
/// at what was captured.
struct ForwardContext {
  Stream& stream;
  ScratchArena& scratch;
  const ForwardInputs* inputs = nullptr;
  AttentionBackend& attention;
  const AttentionMetadata* metadata = nullptr;
  KvCacheView kv = {};
  Compute compute = Compute::kExact;
  /// Type of what layers pass on to each other; the residual stream and logits are f32 always.
  DType activations = DType::kF32;
  const ScoredTokens* scored = nullptr;
  Communicator* ranks = nullptr;  ///< that share the model's weights; null: this rank has all
};

}  // namespace minisgl
