// The pre-tokenizers that GGUF files name.

#pragma once

#include <string_view>

#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace minisgl {

/// What a value of `tokenizer.ggml.pre` stands for. The file says no more than this name.
struct GgufPreTokenizer {
  PreTokenizer steps;
  Normalizer normalizer;
  bool ignore_merges = false;
  bool add_bos = false;  ///< unless the file has add_bos_token
};

/// Throws Error naming `name` and the supported ones.
/// Source: the names and patterns of llama.cpp's llama-vocab.cpp, which its converter finds by
/// comparing tokenizations; patterns are written as in the models' own tokenizer.json.
GgufPreTokenizer gguf_pre_tokenizer(std::string_view name);

}  // namespace minisgl
