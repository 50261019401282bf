#include "chat/call_scanner.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "chat/white_space.h"

namespace minisgl {
namespace {

using Kind = ChatPiece::Kind;

// The text that a JSON string stands for; nullopt when it is none.
std::optional<std::string> unquoted(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace

JsonSpan::Step JsonSpan::push(char c) {
  const bool is_first = !std::exchange(started_, true);
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      return depth_ == 0 ? Step::kLast : Step::kInside;
    }
    return Step::kInside;
  }
  switch (c) {
    case '"':
      if (depth_ == 0 && !is_first) return Step::kAfter;
      in_string_ = true;
      is_string_ = is_first;
      return Step::kInside;
    case '{':
    case '[':
      if (depth_ == 0 && !is_first) return Step::kAfter;
      ++depth_;
      return Step::kInside;
    case '}':
    case ']':
      if (depth_ == 0) return Step::kAfter;
      return --depth_ == 0 ? Step::kLast : Step::kInside;
    default:
      if (depth_ == 0 && (c == ',' || is_white_space(c))) return Step::kAfter;
      return Step::kInside;
  }
}

CallScanner::Status CallScanner::push(char c, ChatPieces& pieces) {
  if (!begun_) raw_ += c;
  const Status status = step(c, pieces);
  if (begun_) raw_.clear();
  return status;
}

CallScanner::Status CallScanner::step(char c, ChatPieces& pieces) {
  if (state_ == State::kInKey) {
    text_ += c;
    if (span_.push(c) != JsonSpan::Step::kLast) return Status::kMore;
    const std::string key = unquoted(text_).value_or("");
    member_ = key == "name"                               ? Member::kName
              : key == "arguments" || key == "parameters" ? Member::kArguments
                                                          : Member::kOther;
    state_ = State::kColon;
    return Status::kMore;
  }
  if (state_ == State::kInValue) return value(c, pieces);
  if (is_white_space(c)) return Status::kMore;
  switch (state_) {
    case State::kOpen:
      if (c != '{') return Status::kBroken;
      state_ = State::kKey;
      return Status::kMore;
    case State::kKey:
      if (c == '}') return end(pieces);
      if (c != '"') return Status::kBroken;
      text_ = c;
      span_ = {};
      span_.push(c);
      state_ = State::kInKey;
      return Status::kMore;
    case State::kColon:
      if (c != ':') return Status::kBroken;
      state_ = State::kValue;
      return Status::kMore;
    case State::kValue:
      if (c == ',' || c == ':' || c == '}' || c == ']') return Status::kBroken;
      text_.clear();
      span_ = {};
      state_ = State::kInValue;
      return value(c, pieces);
    case State::kComma:
      if (c == '}') return end(pieces);
      if (c != ',') return Status::kBroken;
      state_ = State::kKey;
      return Status::kMore;
    default: return Status::kBroken;
  }
}

CallScanner::Status CallScanner::value(char c, ChatPieces& pieces) {
  const JsonSpan::Step step_of_value = span_.push(c);
  if (step_of_value != JsonSpan::Step::kAfter) {
    const bool passes =
        member_ == Member::kArguments && !has_arguments_ && name_.has_value() && !span_.is_string();
    if (passes) {
      begin_call(pieces);
      pieces.add(Kind::kArguments, std::string_view(&c, 1));
    } else if (member_ != Member::kOther) {
      text_ += c;
    }
    if (step_of_value == JsonSpan::Step::kInside) return Status::kMore;
  }
  if (!end_value(pieces)) return Status::kBroken;
  state_ = State::kComma;
  return step_of_value == JsonSpan::Step::kAfter ? step(c, pieces) : Status::kMore;
}

// False when the value cannot be what its key says.
bool CallScanner::end_value(ChatPieces& pieces) {
  if (member_ == Member::kName) {
    if (name_) return false;
    name_ = unquoted(text_);
    return name_.has_value() && !name_->empty();
  }
  if (member_ != Member::kArguments || has_arguments_) return true;
  has_arguments_ = true;
  if (begun_) return true;  // they were passed on
  std::string arguments = span_.is_string() ? unquoted(text_).value_or(text_) : text_;
  if (name_) {
    begin_call(pieces);
    pieces.add(Kind::kArguments, arguments);
  } else {
    early_arguments_ = std::move(arguments);
  }
  return true;
}

CallScanner::Status CallScanner::end(ChatPieces& pieces) {
  state_ = State::kEnd;
  if (begun_) return Status::kDone;
  if (!name_ || (needs_arguments_ && !early_arguments_)) return Status::kBroken;
  begin_call(pieces);
  pieces.add(Kind::kArguments, early_arguments_.value_or("{}"));
  return Status::kDone;
}

void CallScanner::begin_call(ChatPieces& pieces) {
  if (!std::exchange(begun_, true)) pieces.add(Kind::kCall, *name_);
}

}  // namespace minisgl
