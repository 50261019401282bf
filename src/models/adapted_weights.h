// Checkpoints whose tensors are named or cut otherwise, under the names that the decoder asks for.

#pragma once

#include <memory>

#include "core/model_config.h"
#include "layers/weight_source.h"

namespace minisgl::models {

/// `source` as the row of config.architecture needs it:
///   - qkv_proj [q + 2 kv rows, hidden] is there as q_proj, k_proj and v_proj, and gate_up_proj
///     (in a GGUF file: up_proj) [2 * intermediate, hidden] as gate_proj and up_proj, if the row has
///     merged projections. Views of the same memory, in any storage type.
///   - the text model of a model with images has the names of a text model, and the other tensors
///     are not there.
/// Unchanged if the row needs nothing.
///
/// Errors   find() throws Error naming a merged tensor of another shape.
std::unique_ptr<WeightSource> adapted_weights(std::unique_ptr<WeightSource> source,
                                              const ModelConfig& config);

}  // namespace minisgl::models
