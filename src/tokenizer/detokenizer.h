// Token ids to text while they arrive.

#pragma once

#include <string>

#include "base/types.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// Emits whole UTF-8 characters only: an incomplete tail is held back until it is complete or the
/// end comes. What push() and flush() return, joined, equals decode() of all ids. Cost per token
/// does not grow with the length. One per answer; not thread-safe; `tokenizer` must outlive it.
class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  /// The text that `id` completes; empty when it only adds part of a character.
  std::string push(TokenId id);
  /// What was held back, as U+FFFD: call once at the end.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool at_start_ = true;  // nothing was added yet
  std::string pending_;   // an incomplete UTF-8 sequence, at most 3 bytes
};

}  // namespace minisgl
