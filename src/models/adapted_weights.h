// Checkpoints whose projections are merged, as the decoder asks for them.

#pragma once

#include <memory>

#include "core/model_config.h"
#include "layers/weight_source.h"

namespace minisgl::models {

/// If the row of config.architecture has merged projections: qkv_proj [q + 2 kv rows, hidden] is
/// there as q_proj, k_proj and v_proj, and gate_up_proj (in a GGUF file: up_proj) [2 *
/// intermediate, hidden] as gate_proj and up_proj. Views of the same memory, in any storage type.
/// Else `source` itself.
///
/// Errors   find() throws Error naming a merged tensor of another shape.
std::unique_ptr<WeightSource> adapted_weights(std::unique_ptr<WeightSource> source,
                                              const ModelConfig& config);

}  // namespace minisgl::models
