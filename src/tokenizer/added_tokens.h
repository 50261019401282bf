// Tokens that are found in the raw text, before any splitting: <|im_start|>, <think>, ...

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace minisgl {

/// An entry of tokenizer.json's "added_tokens".
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      ///< a control token: text from a user must not become one
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool single_word = false;  ///< only where no word character is next to it
  bool normalized = false;   ///< is searched in the normalized text instead of the raw text
};

/// Finds added tokens: leftmost first, the longest of those that begin there. Immutable once made.
/// Source: the rules of Hugging Face tokenizers' added_vocabulary.
class AddedTokenFinder {
 public:
  /// Tokens whose content is empty or not well-formed UTF-8 are not searched: what lies between
  /// matches in well-formed text is then well-formed too.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  const std::vector<AddedToken>& tokens() const { return tokens_; }

  struct Found {
    const AddedToken* token = nullptr;
    std::size_t begin = 0;  ///< with the white space that lstrip and rstrip take
    std::size_t end = 0;
  };

  /// The first allowed token at or after byte `from`; white space before `from` is not taken.
  /// allowed(token, begin, end) gets the place of the bare token; when it refuses, shorter tokens
  /// at that place and those that begin later are tried.
  template <class Allowed>
  std::optional<Found> find(std::string_view text, std::size_t from, const Allowed& allowed) const {
    for (std::size_t at = next_candidate(text, from); at < text.size();
         at = next_candidate(text, at + 1)) {
      for (std::int32_t found = longest(text, at, text.size()); found >= 0;) {
        const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
        const std::size_t end = at + token.content.size();
        if (fits(token, text, at, end) && allowed(token, at, end))
          return with_white_space(token, text, from, {&token, at, end});
        found = longest(text, at, end - 1);
      }
    }
    return std::nullopt;
  }

 private:
  struct Node {
    std::int32_t token = -1;  // index into tokens_ of the content that ends here
    std::vector<std::pair<unsigned char, std::int32_t>> children;
  };

  // First byte >= from that begins some token; text.size() when there is none.
  std::size_t next_candidate(std::string_view text, std::size_t from) const;
  // Index of the longest token that begins at `at` and ends at or before `limit`; -1: none.
  std::int32_t longest(std::string_view text, std::size_t at, std::size_t limit) const;
  static bool fits(const AddedToken& token, std::string_view text, std::size_t begin,
                   std::size_t end);
  static Found with_white_space(const AddedToken& token, std::string_view text, std::size_t from,
                                Found found);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                  // a trie; node 0 is its root
  std::array<bool, 256> begins_{};           // by the first byte of some token
  std::optional<unsigned char> only_first_;  // the one, if there is but one
};

}  // namespace minisgl
