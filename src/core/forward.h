// Everything that a layer may need besides its weights and its input. There are no globals.

#pragma once

#include "core/batch.h"
#include "tensor/kv_view.h"
#include "tensor/arena.h"
#include "tensor/stream.h"

namespace minisgl {

class AttentionBackend;

struct ForwardContext {
  Stream& stream;
  ScratchArena& scratch;
  const ForwardInputs& inputs;
  AttentionBackend& attention;
  const AttentionMetadata& metadata;
  KvCacheView kv;
};

}  // namespace minisgl
