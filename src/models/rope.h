// Rotary frequencies of a model.

#pragma once

#include <vector>

#include "core/model_config.h"

namespace minisgl::models {

/// inv_freq[i] = theta^(-2i / dims), i < dims / 2, scaled as `rope` says; `dims` is
/// rope.rotated_dims or, if that is 0, head_dim. Computed in f64,
/// rounded once. The factor of cos and sin, rope.attention_factor, is not part of them.
///
/// `max_seq_len` is the longest sequence that the frequencies are for, in tokens: only kDynamic and
/// kLongRope depend on it, and only beyond original_max_position. Keys stay in the cache as they
/// were rotated, so all sequences have the frequencies of the longest.
/// Errors   Error when `dims` is odd or the divisors are of another number.
/// Source   transformers modeling_rope_utils.py (_compute_linear_scaling_rope_parameters,
///          _compute_llama3_parameters, _compute_yarn_parameters, _compute_dynamic_ntk_parameters,
///          _compute_longrope_parameters).
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim,
                                            std::int64_t max_seq_len = 0);

}  // namespace minisgl::models
