// What the loaders of tokenizer.json and GGUF vocabularies have in common.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/bpe_tokenizer.h"

namespace minisgl {

/// Fills the vocabulary of a BpeTokenizerParts: all tokens first, then all merges, then finish().
/// Errors begin with `source`, the name of the file.
class VocabularyBuilder {
 public:
  /// `byte_level`: spellings are in the alphabet of byte_level.h.
  VocabularyBuilder(BpeTokenizerParts& parts, bool byte_level, std::string source);

  /// An entry of the vocabulary, by its spelling. One that the alphabet cannot spell is text.
  void add_token(TokenId id, std::string_view spelling);
  /// An added token: decoded as its text, given its id even if the vocabulary lacks it.
  void add_added_token(AddedToken token);

  /// Room for merges; call before the first one.
  void reserve_merges(std::size_t count);
  /// "a b": the halves may not contain a space. Throws Error with the entry's number (from 0) when
  /// it is not of that form, or one of the three tokens is not in the vocabulary.
  void add_merge(std::size_t entry, std::string_view text);
  void add_merge(std::size_t entry, std::string_view left, std::string_view right);

  /// Looks up the tokens of single bytes: themselves, or `<0x41>` where there is `byte_fallback`.
  void finish(bool byte_fallback);

 private:
  std::string_view to_bytes(std::string_view spelling);
  TokenId find_part(std::size_t entry, std::string_view bytes, std::string_view left,
                    std::string_view right) const;

  BpeTokenizerParts& parts_;
  std::string source_;
  std::string buffer_;
  std::string merged_;
};

/// Id of an added or ordinary token by its spelling; kNoToken when there is none.
TokenId find_token(const BpeTokenizerParts& parts, std::string_view spelling);

/// Fills parts.decoded of a vocabulary that is not byte-level: in each spelling the `replacements`
/// (from, to) are made in order, `<0x41>` is a byte if there is `byte_fallback`, and added tokens
/// are their text.
void decode_spellings(BpeTokenizerParts& parts,
                      const std::vector<std::pair<std::string, std::string>>& replacements,
                      bool byte_fallback);

}  // namespace minisgl
