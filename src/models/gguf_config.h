// GGUF metadata -> ModelConfig.

#pragma once

#include "core/model_config.h"
#include "formats/gguf.h"

namespace minisgl::models {

/// Reads the metadata of a GGUF file of architecture llama, qwen2, qwen3 or qwen3moe. The
/// vocabulary's size is the embedding's, the head is tied when there is no output.weight, and
/// rope_freqs.weight becomes rope.divisors.
///
/// Errors   As above; also a part of a split file, and experts where the architecture has none.
/// Source   ggml docs/gguf.md, llama.cpp src/llama-arch.cpp (names of keys).
ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace minisgl::models
