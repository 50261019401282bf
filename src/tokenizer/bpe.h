// Byte-pair encoding of one word.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "tokenizer/token_table.h"

namespace minisgl {

/// A vocabulary that BPE works on.
struct BpeVocabulary {
  TokenTable tokens;
  MergeTable merges;
  /// The token that is exactly this byte (byte-level vocabularies) or stands for it (`<0x41>` in
  /// those with byte fallback); kNoToken when the vocabulary lacks it.
  std::array<TokenId, 256> byte_tokens = make_no_tokens();
  /// true: a word begins as its bytes. false: as its characters, and one without a token as its
  /// bytes (byte fallback), if it has all of them.
  bool starts_as_bytes = true;
  /// A word that is a token is that token, whether or not merges would lead there.
  bool ignore_merges = false;
  /// Control tokens: no word becomes one of these by ignore_merges.
  std::vector<TokenId> control;
  /// What a character without token becomes; kNoToken: nothing, it is dropped.
  TokenId unknown = kNoToken;
  /// Several unknown characters in a row are one unknown token.
  bool fuse_unknown = false;

 private:
  static constexpr std::array<TokenId, 256> make_no_tokens() {
    std::array<TokenId, 256> none{};
    none.fill(kNoToken);
    return none;
  }
};

/// Buffers for long words, reused from word to word. One per thread that encodes.
struct BpeScratch {
  struct Symbol {
    TokenId id = kNoToken;
    std::int32_t previous = -1;
    std::int32_t next = -1;
  };
  std::vector<TokenId> ids;
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;
};

/// Repeatedly merges the neighbouring pair of lowest rank, the leftmost of several, until no pair
/// has a merge. Any thread may encode.
/// Complexity: words of up to 64 symbols O(n^2) without allocation; longer ones O(n log n).
/// Source: Sennrich, Haddow and Birch 2016; order as in Hugging Face tokenizers' BPE.
class Bpe {
 public:
  explicit Bpe(BpeVocabulary vocabulary);

  const BpeVocabulary& vocabulary() const { return vocabulary_; }

  /// Appends the tokens of `word` (well-formed UTF-8 unless it starts as bytes).
  void encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;

  /// Merges `ids` in place until nothing merges; `encode` without the first step.
  void merge(std::vector<TokenId>& ids, BpeScratch& scratch) const;

 private:
  // Whether a token's own bytes, as a word, become that token; found out when it is first needed.
  enum Reachable : std::uint8_t { kNotKnown, kYes, kNo };

  // The merge of two bytes' tokens.
  MergeTable::Found merge_of_bytes(unsigned char left, unsigned char right) const {
    return byte_pairs_[static_cast<std::size_t>(left) << 8 | right];
  }
  std::size_t encode_bytes(std::string_view word, TokenId* ids) const;
  bool is_reachable(TokenId token, std::string_view word, BpeScratch& scratch) const;
  std::size_t merge_short(TokenId* ids, MergeTable::Found* pairs, std::size_t count) const;
  std::size_t merge_long(TokenId* ids, std::size_t count, BpeScratch& scratch) const;
  void append_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  void encode_by_merges(std::string_view word, BpeScratch& scratch,
                        std::vector<TokenId>& out) const;

  BpeVocabulary vocabulary_;
  bool has_all_bytes_;
  // By two bytes: what a word begins with is looked up here, without hashing. Empty for
  // vocabularies that do not start as bytes or lack some.
  std::vector<MergeTable::Found> byte_pairs_;
  // Written by whoever comes first, always with the same value: a memo, not state.
  std::unique_ptr<std::atomic<std::uint8_t>[]> reachable_;
};

}  // namespace minisgl
