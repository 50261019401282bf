// Rotary frequencies of a model.

#pragma once

#include <vector>

#include "core/model_config.h"

namespace minisgl::models {

/// inv_freq[i] = theta^(-2i / head_dim), i < head_dim / 2, scaled as `rope` says. Computed in f64,
/// rounded once. cos and sin are not rescaled by any of the kinds.
/// Errors   Error when head_dim is odd or `rope.divisors` are of another number.
/// Source   transformers modeling_rope_utils.py (_compute_linear_scaling_rope_parameters,
///          _compute_llama3_parameters).
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim);

}  // namespace minisgl::models
