// config.json and GGUF metadata -> ModelConfig.

#pragma once

#include <filesystem>

#include "core/model_config.h"
#include "formats/gguf.h"

namespace minisgl::models {

/// Reads config.json and, when there is one, generation_config.json (eos_token_id, sampling). Both
/// spellings of transformers are read: 4 (rope_theta, rope_scaling, torch_dtype) and 5
/// (rope_parameters, dtype).
///
/// Errors   Error in one line naming file, key, what was found and what is supported: a missing
///          or impossible size, an unknown architecture, quantization_config, an activation other
///          than silu, attention_bias, mlp_bias, sliding windows, an unknown rope scaling.
/// Source   transformers configuration_{llama,mistral,qwen2,qwen3}.py.
ModelConfig read_huggingface_config(const std::filesystem::path& folder);

/// Reads the metadata of a GGUF file of architecture llama, qwen2 or qwen3. The vocabulary's size
/// is the embedding's, the head is tied when there is no output.weight, and rope_freqs.weight
/// becomes rope.divisors.
///
/// Errors   As above; also a part of a split file, and experts.
/// Source   ggml docs/gguf.md, llama.cpp src/llama-arch.cpp (names of keys).
ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace minisgl::models
