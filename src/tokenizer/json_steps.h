// The processing steps of a tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/json.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"

namespace minisgl {

// All functions take the whole file and throw Error naming a type that is not supported, and the
// supported ones. A step that is absent or null does nothing.

/// NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence.
Normalizer read_normalizer(json::Element file);

struct PreTokenizerSteps {
  PreTokenizer steps;
  bool byte_level = false;  ///< pieces are then written in the alphabet of byte_level.h
};
/// Split, Digits, ByteLevel, Metaspace, Sequence.
PreTokenizerSteps read_pre_tokenizer(json::Element file);

/// What is added around one text.
struct AddedAround {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};
/// TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence.
AddedAround read_post_processor(json::Element file);

/// From the spelling of tokens to text.
struct DecoderRules {
  bool byte_level = false;
  std::vector<std::pair<std::string, std::string>> replace;
  bool byte_fallback = false;  ///< `<0x41>` is a byte
  bool strip_leading_space = false;
};
/// ByteLevel, Replace (of a string), ByteFallback, Fuse, Strip (of one leading space), Metaspace,
/// Sequence.
DecoderRules read_decoder(json::Element file);

}  // namespace minisgl
