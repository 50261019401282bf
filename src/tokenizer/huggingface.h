// tokenizer.json and the files beside it.

#pragma once

#include <string_view>

#include "tokenizer/bpe_tokenizer.h"

namespace minisgl {

/// Reads the text of a tokenizer.json: vocabulary, merges, added tokens and processing steps.
/// Throws Error naming what is missing, ill-formed or not supported (only BPE models are).
BpeTokenizerParts parse_tokenizer_json(std::string_view text);

/// Reads the text of a tokenizer_config.json (or special_tokens_map.json) into `parts`: BOS and
/// EOS where they are not known yet, added tokens that `parts` lacks, the chat template.
void parse_tokenizer_config(std::string_view text, BpeTokenizerParts& parts);

}  // namespace minisgl
