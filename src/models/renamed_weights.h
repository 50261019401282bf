// Checkpoints that name or stack their tensors in another way than was first published.

#pragma once

#include <memory>

#include "layers/weight_source.h"

namespace minisgl::models {

/// `source` with the names that layers ask for:
///
///  * Experts stacked in one tensor, [num_experts, rows, cols], become matrices of one expert each:
///    mlp.experts.N.{gate,up,down}_proj.weight. GGUF files stack each projection; transformers 5
///    may write mlp.experts.gate_up_proj, gate above up, and mlp.experts.down_proj.
///  * The text part of a model that also sees loses its prefix, language_model; what belongs to
///    its eyes is left out.
///
/// Returns `source` itself when it has neither.
/// Errors   Error naming a stacked tensor whose shape or type is impossible.
std::unique_ptr<WeightSource> with_published_names(std::unique_ptr<WeightSource> source);

}  // namespace minisgl::models
