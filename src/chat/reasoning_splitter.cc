#include "chat/reasoning_splitter.h"

#include "chat/white_space.h"

namespace minisgl {

ReasoningSplitter::ReasoningSplitter(bool in_reasoning)
    : state_(in_reasoning ? State::kReasoning : State::kStart), end_(std::string(kReasoningEnd)) {}

void ReasoningSplitter::push(char c, ChatPieces& pieces, std::string& answer) {
  switch (state_) {
    case State::kStart: start(c, answer); return;
    case State::kReasoning: {
      std::string passed;
      const bool at_end = end_.push(c, passed);
      reason(passed, pieces);
      if (at_end) state_ = State::kGap;
      return;
    }
    case State::kGap:
      if (is_white_space(c)) return;
      state_ = State::kAnswer;
      [[fallthrough]];
    case State::kAnswer: answer += c; return;
  }
}

void ReasoningSplitter::start(char c, std::string& answer) {
  held_ += c;
  const std::string_view begun = without_leading_space(held_);
  if (begun == kReasoningBegin) {
    held_.clear();
    state_ = State::kReasoning;
  } else if (!kReasoningBegin.starts_with(begun)) {
    answer += std::exchange(held_, {});
    state_ = State::kAnswer;
  }
}

void ReasoningSplitter::reason(std::string_view text, ChatPieces& pieces) {
  for (const char c : text) {
    if (is_white_space(c)) {
      if (has_reasoning_) held_ += c;
      continue;
    }
    has_reasoning_ = true;
    held_ += c;
    pieces.add(ChatPiece::Kind::kReasoning, std::exchange(held_, {}));
  }
}

void ReasoningSplitter::finish(ChatPieces& pieces, std::string& answer) {
  if (state_ == State::kStart) answer += std::exchange(held_, {});
  if (state_ == State::kReasoning) reason(end_.flush(), pieces);
  held_.clear();
}

}  // namespace minisgl
