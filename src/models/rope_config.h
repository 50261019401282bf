// What files say about rotary positions -> RopeConfig.

#pragma once

#include <cstdint>

#include "core/model_config.h"
#include "models/config_section.h"

namespace minisgl::models {

/// Reads rope_theta and rope_parameters (transformers 5) or rope_scaling (4), whose kind is called
/// rope_type or type. `context` is max_position_embeddings.
/// Errors   Error naming the key: an unknown kind, a parameter that is missing or impossible.
/// Source   transformers modeling_rope_utils.py.
RopeConfig read_rope(const JsonSection& section, std::int64_t context);

/// Reads rope.freq_base, rope.scaling.* and the tensor rope_freqs.weight of a GGUF file. `context`
/// is context_length.
/// Errors   As above; also a head that is rotated in part.
/// Source   ggml docs/gguf.md; llama.cpp src/llama-arch.cpp, llama-model.cpp (keys and defaults),
///          llama-context.cpp (yarn's factor).
RopeConfig read_gguf_rope(const GgufSection& section, std::int64_t head_dim, std::int64_t context);

}  // namespace minisgl::models
