#include "tokenizer/detokenizer.h"

#include <string_view>

#include "base/utf8.h"

namespace minisgl {

std::string IncrementalDetokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  std::string_view added = tokenizer_.token_bytes(id);
  if (added.empty()) return {};
  if (at_start_ && tokenizer_.strips_leading_space() && added[0] == ' ') added.remove_prefix(1);
  at_start_ = false;
  pending_ += added;
  const std::size_t complete = pending_.size() - incomplete_utf8_tail(pending_);
  std::string text = replace_ill_formed(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string IncrementalDetokenizer::flush() {
  std::string text = replace_ill_formed(pending_);
  pending_.clear();
  return text;
}

}  // namespace minisgl
