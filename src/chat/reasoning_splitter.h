// Reasoning and answer of a model that thinks aloud: <think>...</think>, then the answer.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "chat/chat_piece.h"
#include "chat/tag_finder.h"

namespace minisgl {

inline constexpr std::string_view kReasoningBegin = "<think>";
inline constexpr std::string_view kReasoningEnd = "</think>";

/// White space around the reasoning belongs to neither; nor does any before the answer, if there
/// was reasoning. An answer that does not begin with <think> has none, unless the prompt ended with
/// that tag. One per answer.
class ReasoningSplitter {
 public:
  /// `in_reasoning`: the prompt ended with <think>.
  explicit ReasoningSplitter(bool in_reasoning);

  /// Takes the next byte. Reasoning goes to `pieces`; what belongs to the answer is appended to
  /// `answer`.
  void push(char c, ChatPieces& pieces, std::string& answer);
  /// The end of the text.
  void finish(ChatPieces& pieces, std::string& answer);

 private:
  enum class State : std::uint8_t { kStart, kReasoning, kGap, kAnswer };

  void start(char c, std::string& answer);
  void reason(std::string_view text, ChatPieces& pieces);

  State state_;
  std::string held_;  // kStart: all so far; kReasoning: white space that may be its end
  bool has_reasoning_ = false;
  TagFinder end_;
};

}  // namespace minisgl
