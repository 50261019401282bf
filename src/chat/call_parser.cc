#include "chat/call_parser.h"

#include <string_view>
#include <utility>

#include "chat/call_scanner.h"
#include "chat/tag_finder.h"
#include "chat/white_space.h"

namespace minisgl {
namespace {

using Kind = ChatPiece::Kind;
using Status = CallScanner::Status;

// Everything is content.
class NoCalls final : public CallParser {
 public:
  void push(char c, ChatPieces& pieces) override {
    pieces.add(Kind::kContent, std::string_view(&c, 1));
  }
  void finish(ChatPieces& /*pieces*/) override {}
};

// Content up to a tag. White space right before the tag is dropped.
class ContentBeforeTag {
 public:
  explicit ContentBeforeTag(const std::string& tag) : tag_(tag), finder_(tag) {}

  // True at the end of the tag.
  bool push(char c, ChatPieces& pieces) {
    std::string passed;
    const bool found = finder_.push(c, passed);
    pass(passed, pieces);
    if (found) found_ = std::exchange(space_, {}) + tag_;
    return found;
  }
  // The tag turned out to be content, and so is `text` after it.
  void restore(std::string_view text, ChatPieces& pieces) {
    pass(std::exchange(found_, {}), pieces);
    pass(text, pieces);
  }
  void pass(std::string_view text, ChatPieces& pieces) {
    for (const char c : text) {
      space_ += c;
      if (!is_white_space(c)) pieces.add(Kind::kContent, std::exchange(space_, {}));
    }
  }
  void finish(ChatPieces& pieces) {
    pieces.add(Kind::kContent, std::exchange(space_, {}) + finder_.flush());
  }

 private:
  std::string tag_;
  TagFinder finder_;
  std::string space_;  // may be right before the tag
  std::string found_;  // the last tag, with the white space before it
};

class HermesCalls final : public CallParser {
 public:
  void push(char c, ChatPieces& pieces) override {
    switch (state_) {
      case State::kContent:
        if (!content_.push(c, pieces)) return;
        scanner_ = CallScanner(/*needs_arguments=*/false);
        state_ = State::kCall;
        return;
      case State::kCall: call(c, pieces); return;
      case State::kAfterCall: after_call(c, pieces); return;
    }
  }

  void finish(ChatPieces& pieces) override {
    if (state_ == State::kCall) give_up(pieces);
    if (state_ == State::kAfterCall) content_.pass(std::exchange(held_, {}), pieces);
    content_.finish(pieces);
  }

 private:
  enum class State : std::uint8_t { kContent, kCall, kAfterCall };
  static constexpr std::string_view kBegin = "<tool_call>";
  static constexpr std::string_view kEnd = "</tool_call>";

  void call(char c, ChatPieces& pieces) {
    const Status status = scanner_.push(c, pieces);
    if (status == Status::kMore) return;
    if (status == Status::kBroken && !scanner_.raw().empty()) {
      give_up(pieces);
      return;
    }
    held_.clear();
    state_ = State::kAfterCall;
  }

  // White space, and the end tag if the model writes it.
  void after_call(char c, ChatPieces& pieces) {
    held_ += c;
    const std::string_view text = without_leading_space(held_);
    if (kEnd.starts_with(text) && text != kEnd) return;
    const bool at_end = text == kEnd;
    const std::string rest = std::exchange(held_, {});
    state_ = State::kContent;
    if (at_end) return;
    for (const char r : rest) push(r, pieces);
  }

  // What looked like a call is content.
  void give_up(ChatPieces& pieces) {
    if (!scanner_.raw().empty()) content_.restore(scanner_.raw(), pieces);
    state_ = State::kContent;
  }

  State state_ = State::kContent;
  ContentBeforeTag content_{std::string(kBegin)};
  CallScanner scanner_{false};
  std::string held_;
};

class Llama3Calls final : public CallParser {
 public:
  void push(char c, ChatPieces& pieces) override {
    switch (state_) {
      case State::kStart:
        held_ += c;
        start(pieces);
        return;
      case State::kCall: call(c, pieces); return;
      case State::kContent: pieces.add(Kind::kContent, std::string_view(&c, 1)); return;
    }
  }

  void finish(ChatPieces& pieces) override {
    if (state_ == State::kCall) held_ += scanner_.raw();
    // After a call, separators are no content.
    if (state_ != State::kContent && !(num_calls_ > 0 && is_separator(held_)))
      pieces.add(Kind::kContent, held_);
    held_.clear();
  }

 private:
  enum class State : std::uint8_t { kStart, kCall, kContent };
  static constexpr std::string_view kTag = "<|python_tag|>";

  static bool is_separator(std::string_view text) {
    return text.find_first_not_of(" \t\r\n;,") == std::string_view::npos;
  }

  // Before the first call, or between two.
  void start(ChatPieces& pieces) {
    std::string_view text = held_;
    while (!text.empty() &&
           (is_white_space(text[0]) || (num_calls_ > 0 && is_separator(text.substr(0, 1)))))
      text.remove_prefix(1);
    if (text.empty() || (text.size() < kTag.size() && kTag.starts_with(text))) return;
    if (text.starts_with(kTag)) text = without_leading_space(text.substr(kTag.size()));
    if (text.empty()) return;
    if (text[0] != '{') {
      pieces.add(Kind::kContent, std::exchange(held_, {}));
      state_ = State::kContent;
      return;
    }
    held_.pop_back();  // the scanner keeps what it takes
    scanner_ = CallScanner(/*needs_arguments=*/true);
    state_ = State::kCall;
    scanner_.push('{', pieces);
  }

  void call(char c, ChatPieces& pieces) {
    const Status status = scanner_.push(c, pieces);
    if (status == Status::kMore) return;
    if (status == Status::kBroken) {
      pieces.add(Kind::kContent, scanner_.raw().empty() ? "" : held_ + scanner_.raw());
      state_ = State::kContent;
    } else {
      ++num_calls_;
      state_ = State::kStart;
    }
    held_.clear();
  }

  State state_ = State::kStart;
  std::string held_;
  CallScanner scanner_{true};
  std::size_t num_calls_ = 0;
};

// A JSON array of calls.
class CallList {
 public:
  // False when the byte cannot belong to the list, or after its end.
  bool push(char c, ChatPieces& pieces) {
    if (in_call_) {
      const Status status = scanner_.push(c, pieces);
      if (status == Status::kDone) in_call_ = false;
      return status != Status::kBroken;
    }
    if (is_white_space(c)) return true;
    if (!open_) return open_ = c == '[';
    if (c == ',') return true;
    if (c == ']') {
      closed_ = true;
      return true;
    }
    scanner_ = CallScanner(/*needs_arguments=*/false);
    in_call_ = true;
    return scanner_.push(c, pieces) == Status::kMore;
  }
  bool closed() const { return closed_; }
  // Text of a call of which nothing was passed on.
  const std::string& raw() const { return in_call_ ? scanner_.raw() : kNothing; }

 private:
  inline static const std::string kNothing;
  bool open_ = false, closed_ = false, in_call_ = false;
  CallScanner scanner_{false};
};

class MistralCalls final : public CallParser {
 public:
  void push(char c, ChatPieces& pieces) override {
    switch (state_) {
      case State::kContent:
        if (!content_.push(c, pieces)) return;
        held_.clear();
        state_ = State::kStart;
        return;
      case State::kStart:
        held_ += c;
        if (is_white_space(c)) return;
        list_ = {};
        state_ = c == '[' ? State::kList : State::kName;
        if (c == '[') list_.push(c, pieces);
        return;
      case State::kList: list(c, pieces); return;
      case State::kName: name(c, pieces); return;
      case State::kArguments: arguments(c, pieces); return;
    }
  }

  void finish(ChatPieces& pieces) override {
    if (state_ == State::kStart || state_ == State::kName) content_.restore(held_, pieces);
    if (state_ == State::kList) content_.pass(list_.raw(), pieces);
    content_.finish(pieces);
  }

 private:
  enum class State : std::uint8_t { kContent, kStart, kList, kName, kArguments };
  static constexpr std::string_view kTag = "[TOOL_CALLS]";

  void list(char c, ChatPieces& pieces) {
    if (list_.push(c, pieces)) {
      if (list_.closed()) state_ = State::kContent;
      return;
    }
    content_.pass(list_.raw(), pieces);
    state_ = State::kContent;
  }

  // f[ARGS]{, f[CALL_ID]id[ARGS]{ or f{.
  void name(char c, ChatPieces& pieces) {
    if (c != '{') {
      held_ += c;
      return;
    }
    std::string_view function = without_leading_space(held_);
    function = function.substr(0, function.find('['));
    while (!function.empty() && is_white_space(function.back())) function.remove_suffix(1);
    pieces.add(Kind::kCall, function);
    held_.clear();
    span_ = {};
    state_ = State::kArguments;
    arguments(c, pieces);
  }

  void arguments(char c, ChatPieces& pieces) {
    pieces.add(Kind::kArguments, std::string_view(&c, 1));
    if (span_.push(c) != JsonSpan::Step::kInside) state_ = State::kContent;
  }

  State state_ = State::kContent;
  ContentBeforeTag content_{std::string(kTag)};
  std::string held_;
  CallList list_;
  JsonSpan span_;
};

// The answer is a list of calls: constrained output sees to it.
class RequiredCalls final : public CallParser {
 public:
  void push(char c, ChatPieces& pieces) override {
    if (broken_) {
      pieces.add(Kind::kContent, std::string_view(&c, 1));
    } else if (!list_.closed() && !list_.push(c, pieces)) {
      broken_ = true;
      pieces.add(Kind::kContent, list_.raw().empty() ? std::string(1, c) : list_.raw());
    }
  }
  void finish(ChatPieces& pieces) override {
    if (!broken_) pieces.add(Kind::kContent, list_.raw());
  }

 private:
  CallList list_;
  bool broken_ = false;
};

// The answer is the arguments of one call.
class RequiredArguments final : public CallParser {
 public:
  explicit RequiredArguments(std::string function) : function_(std::move(function)) {}

  void push(char c, ChatPieces& pieces) override {
    if (!std::exchange(begun_, true)) pieces.add(Kind::kCall, function_);
    pieces.add(Kind::kArguments, std::string_view(&c, 1));
  }
  void finish(ChatPieces& /*pieces*/) override {}

 private:
  std::string function_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallParser> make_call_parser(CallSyntax syntax, const std::string& function) {
  switch (syntax) {
    case CallSyntax::kHermes: return std::make_unique<HermesCalls>();
    case CallSyntax::kLlama3: return std::make_unique<Llama3Calls>();
    case CallSyntax::kMistral: return std::make_unique<MistralCalls>();
    case CallSyntax::kList: return std::make_unique<RequiredCalls>();
    case CallSyntax::kArguments: return std::make_unique<RequiredArguments>(function);
    case CallSyntax::kNone: break;
  }
  return std::make_unique<NoCalls>();
}

}  // namespace minisgl
