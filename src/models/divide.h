// Which numbers of ranks can share a model.

#pragma once

#include "core/model_config.h"
#include "layers/weights.h"

namespace minisgl::models {

/// Query heads and the widths of MLPs and experts in equal parts; key heads too, or as many ranks
/// with equal ones; a part of the vocabulary for each.
bool can_divide(const ModelConfig& config, std::int64_t ranks);

/// Throws Error naming the sizes that stand against it, and the numbers of ranks that would do,
/// unless can_divide().
void check_divides(const ModelConfig& config, std::int64_t ranks);

}  // namespace minisgl::models
