// config.json -> ModelConfig.

#pragma once

#include <filesystem>

#include "core/model_config.h"

namespace minisgl::models {

/// Reads config.json and, when there is one, generation_config.json (eos_token_id, sampling). Both
/// spellings of transformers are read: 4 (rope_theta, rope_scaling, torch_dtype) and 5
/// (rope_parameters, dtype).
///
/// Errors   Error in one line naming file, key, what was found and what is supported: a missing
///          or impossible size, an unknown architecture, quantization_config, an activation other
///          than silu, attention_bias, mlp_bias, layer types other than full_attention and
///          sliding_attention, an unknown rope scaling.
/// Source   transformers configuration_{llama,mistral,qwen2,qwen3}.py.
ModelConfig read_huggingface_config(const std::filesystem::path& folder);

}  // namespace minisgl::models
