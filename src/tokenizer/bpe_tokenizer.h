// The one Tokenizer there is: BPE with the rules that its files give.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// Everything that a loader reads from its files.
struct BpeTokenizerParts {
  BpeVocabulary vocabulary;
  /// Whether the vocabulary is spelled in the alphabet of byte_level.h; its tokens hold bytes.
  bool byte_level = true;
  /// What each token adds to a text, where that is not what BPE calls it: SentencePiece style,
  /// where U+2581 stands for a space and `<0x41>` for a byte. Empty: the vocabulary's own bytes.
  TokenTable decoded;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;

  std::vector<TokenId> prefix;       ///< what add_special puts in front
  std::vector<TokenId> suffix;       ///< and behind
  bool strip_leading_space = false;  ///< decode() drops one space at the start of the text
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  std::vector<TokenId> end_ids;  ///< every id that ends an answer
  ChatTemplates chat_templates;
};

/// Immutable: any thread may use it.
class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeTokenizerParts parts);
  ~BpeTokenizer() override;

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const override;
  std::vector<TokenId> encode(const MarkedText& text) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override;
  bool strips_leading_space() const override { return strip_leading_space_; }

  std::int32_t vocab_size() const override { return bpe_.vocabulary().tokens.size(); }
  std::optional<TokenId> token_to_id(std::string_view token) const override;
  std::optional<TokenId> bos_id() const override;
  std::string bos_token() const override { return spelling(bos_); }
  std::string eos_token() const override { return spelling(eos_); }
  std::vector<TokenId> eos_ids() const override { return end_ids_; }
  const ChatTemplates& chat_templates() const override { return chat_templates_; }

  /// The words that `text` is split into before BPE, added tokens left out of account: for tests.
  std::vector<std::string> split(std::string_view text) const;

 private:
  class WordEncoder;
  struct Workspace;  // what a thread needs to encode: buffers and a cache of words
  struct Encoding;   // one call of encode(): its rules and result, and a workspace

  // A workspace that nobody uses, or a new one; and back again.
  std::unique_ptr<Workspace> take_workspace() const;
  void return_workspace(std::unique_ptr<Workspace> workspace) const;

  std::string spelling(TokenId id) const { return std::string(token_bytes(id)); }
  void encode_parts(std::string_view text, Encoding& encoding) const;
  void encode_between(std::string_view raw, std::size_t raw_begin, Encoding& encoding) const;
  std::vector<MarkedText::Span> spans_after_normalizer(std::string_view raw, std::size_t raw_begin,
                                                       std::string_view text,
                                                       const Encoding& encoding) const;
  void encode_words(std::string_view text, bool at_start, Encoding& encoding) const;

  Bpe bpe_;
  TokenTable decoded_;
  bool byte_level_;
  bool strip_leading_space_;
  AddedTokenFinder raw_added_;         // searched in the text as it is
  AddedTokenFinder normalized_added_;  // searched after normalization; contents are normalized
  std::map<std::string, TokenId, std::less<>> added_ids_;
  std::vector<bool> special_;  // by id
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::vector<TokenId> prefix_;
  std::vector<TokenId> suffix_;
  TokenId bos_;
  TokenId eos_;
  std::vector<TokenId> end_ids_;
  ChatTemplates chat_templates_;

  mutable std::mutex mutex_;  // guards idle_
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace minisgl
