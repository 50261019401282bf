// What files say about rotary positions -> RopeConfig.

#pragma once

#include <cstdint>

#include "core/model_config.h"
#include "models/config_section.h"

namespace minisgl::models {

/// Reads rope_theta and rope_parameters (transformers 5) or rope_scaling (4), whose kind is called
/// rope_type or type. `context` is max_position_embeddings. partial_rotary_factor and
/// original_max_position_embeddings are found inside and outside of that object.
/// Errors   Error naming the key: an unknown kind, a parameter that is missing or impossible.
/// Source   transformers modeling_rope_utils.py.
RopeConfig read_rope(const JsonSection& section, std::int64_t head_dim, std::int64_t context);

/// Whether rope_parameters has an object for each kind of layer (full_attention,
/// sliding_attention).
bool has_rope_of_each_kind(const JsonSection& section);

/// Reads rope.freq_base, rope.dimension_count, rope.scaling.* and the tensors rope_freqs.weight and
/// rope_factors_*.weight of a GGUF file. `context` is context_length.
/// Errors   As above.
/// Source   ggml docs/gguf.md; llama.cpp src/llama-arch.cpp, llama-model.cpp (keys and defaults),
///          llama-context.cpp (yarn's factor).
RopeConfig read_gguf_rope(const GgufSection& section, std::int64_t head_dim, std::int64_t context);

}  // namespace minisgl::models
