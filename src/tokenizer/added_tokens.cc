#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace minisgl {
namespace {

// Begin of the character that ends at byte `end` > 0.
std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t pos = end - 1;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
  return pos;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty() || !is_valid_utf8(content)) continue;
    begins_[static_cast<unsigned char>(content[0])] = true;
    std::int32_t node = 0;
    for (const char c : content) {
      const auto byte = static_cast<unsigned char>(c);
      auto& children = nodes_[static_cast<std::size_t>(node)].children;
      const auto child = std::ranges::find(children, byte, [](const auto& x) { return x.first; });
      if (child != children.end()) {
        node = child->second;
        continue;
      }
      const auto added = static_cast<std::int32_t>(nodes_.size());
      children.emplace_back(byte, added);
      nodes_.emplace_back();
      node = added;
    }
    nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(i);
  }
  if (std::ranges::count(begins_, true) == 1)
    only_first_ = static_cast<unsigned char>(std::ranges::find(begins_, true) - begins_.begin());
}

std::size_t AddedTokenFinder::next_candidate(std::string_view text, std::size_t from) const {
  if (nodes_.size() == 1 || from >= text.size()) return text.size();
  if (only_first_) {  // all of them begin with '<', say
    const void* found = std::memchr(text.data() + from, *only_first_, text.size() - from);
    return found == nullptr
               ? text.size()
               : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (from < text.size() && !begins_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

std::int32_t AddedTokenFinder::longest(std::string_view text, std::size_t at,
                                       std::size_t limit) const {
  std::int32_t best = -1;
  const Node* node = nodes_.data();
  for (std::size_t pos = at; pos < limit; ++pos) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    const auto child =
        std::ranges::find(node->children, byte, [](const auto& x) { return x.first; });
    if (child == node->children.end()) break;
    node = &nodes_[static_cast<std::size_t>(child->second)];
    if (node->token >= 0) best = node->token;
  }
  return best;
}

bool AddedTokenFinder::fits(const AddedToken& token, std::string_view text, std::size_t begin,
                            std::size_t end) {
  if (!token.single_word) return true;
  const auto is_word_at = [&](std::size_t pos) {
    return is_word_character(decode_utf8(text, pos).code_point);
  };
  return (begin == 0 || !is_word_at(character_before(text, begin))) &&
         (end == text.size() || !is_word_at(end));
}

AddedTokenFinder::Found AddedTokenFinder::with_white_space(const AddedToken& token,
                                                           std::string_view text, std::size_t from,
                                                           Found found) {
  if (token.lstrip) {
    while (found.begin > from) {
      const std::size_t previous = character_before(text, found.begin);
      if (previous < from || !is_white_space(decode_utf8(text, previous).code_point)) break;
      found.begin = previous;
    }
  }
  if (token.rstrip) {
    while (found.end < text.size()) {
      const Utf8Char next = decode_utf8(text, found.end);
      if (!is_white_space(next.code_point)) break;
      found.end += next.length;
    }
  }
  return found;
}

}  // namespace minisgl
