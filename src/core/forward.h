// Everything that a layer may need besides its weights and its input. There are no globals.

#pragma once

#include "core/batch.h"
#include "tensor/arena.h"
#include "tensor/kv_view.h"
#include "tensor/stream.h"

namespace minisgl {

class AttentionBackend;

/// `inputs` and `metadata` are pointers (never null while a step runs) because a replay points them
/// at what was captured.
struct ForwardContext {
  Stream& stream;
  ScratchArena& scratch;
  const ForwardInputs* inputs = nullptr;
  AttentionBackend& attention;
  const AttentionMetadata* metadata = nullptr;
  KvCacheView kv = {};
  /// Type of what layers pass on to each other; the residual stream and logits are f32 always.
  DType activations = DType::kF32;
};

}  // namespace minisgl
