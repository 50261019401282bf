// A vocabulary of the size of a test.

#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace minisgl::testing_util {

/// Tokens by their bytes; those in `special` are special, the last of them ends an answer.
class ListTokenizer final : public Tokenizer {
 public:
  ListTokenizer(std::vector<std::string> tokens, std::vector<TokenId> special)
      : tokens_(std::move(tokens)), special_(std::move(special)) {}

  /// All bytes, `more`, and three special tokens: <a>, <b> and </s>, which ends an answer.
  static ListTokenizer of_bytes(const std::vector<std::string>& more = {}) {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto first = static_cast<TokenId>(tokens.size());
    for (const char* text : {"<a>", "<b>", "</s>"}) tokens.emplace_back(text);
    return {std::move(tokens), {first, first + 1, first + 2}};
  }

  TokenId end_id() const { return special_.back(); }

  std::vector<TokenId> encode(std::string_view text, EncodeOptions /*options*/) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<TokenId> encode(const MarkedText& text) const override {
    return encode(text.text, EncodeOptions{});
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids)
      if (!(skip_special && is_special(id))) text += token_bytes(id);
    return text;
  }
  std::string_view token_bytes(TokenId id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(tokens_[static_cast<std::size_t>(id)])
                                        : std::string_view();
  }
  bool is_special(TokenId id) const override {
    return std::find(special_.begin(), special_.end(), id) != special_.end();
  }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(tokens_.size()); }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    const auto found = std::find(tokens_.begin(), tokens_.end(), token);
    if (found == tokens_.end()) return std::nullopt;
    return static_cast<TokenId>(found - tokens_.begin());
  }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::string bos_token() const override { return ""; }
  std::string eos_token() const override { return std::string(token_bytes(end_id())); }
  std::vector<TokenId> eos_ids() const override { return {end_id()}; }
  const ChatTemplates& chat_templates() const override { return chat_templates_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenId> special_;
  ChatTemplates chat_templates_;
};

}  // namespace minisgl::testing_util
