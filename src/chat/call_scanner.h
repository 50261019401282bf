// A call as most models write it: {"name": "f", "arguments": {...}}.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "chat/chat_piece.h"

namespace minisgl {

/// Where a JSON value ends, in a text that arrives byte by byte. Looks at nothing but quotes and
/// brackets: the value need not be well-formed.
class JsonSpan {
 public:
  enum class Step : std::uint8_t {
    kInside,  ///< the byte belongs to the value, and more follows
    kLast,    ///< the byte is its last
    kAfter    ///< the byte is not part of it: the value, a number or a word, has ended before
  };
  Step push(char c);
  bool is_string() const { return is_string_; }

 private:
  std::size_t depth_ = 0;
  bool started_ = false, in_string_ = false, escaped_ = false;
  bool is_string_ = false;  // the value itself
};

/// Reads one object that names a function ("name") and its arguments ("arguments" or "parameters"),
/// in any order, and passes the arguments on while they arrive. Other members are left out.
/// Arguments that are a JSON string stand for what is written in that string. An object without a
/// name is no call. One per object.
class CallScanner {
 public:
  enum class Status : std::uint8_t { kMore, kDone, kBroken };

  /// `needs_arguments`: an object without them is no call; else its arguments are {}.
  explicit CallScanner(bool needs_arguments) : needs_arguments_(needs_arguments) {}

  /// Takes the next byte; the first one should be '{'. kDone: it was the last. kBroken: this is no
  /// call; see raw().
  Status push(char c, ChatPieces& pieces);
  /// All bytes so far as long as nothing was passed on; else empty.
  const std::string& raw() const { return raw_; }

 private:
  enum class State : std::uint8_t { kOpen, kKey, kInKey, kColon, kValue, kInValue, kComma, kEnd };
  enum class Member : std::uint8_t { kName, kArguments, kOther };

  Status step(char c, ChatPieces& pieces);
  Status value(char c, ChatPieces& pieces);
  bool end_value(ChatPieces& pieces);
  Status end(ChatPieces& pieces);
  void begin_call(ChatPieces& pieces);

  bool needs_arguments_;
  State state_ = State::kOpen;
  Member member_ = Member::kOther;
  JsonSpan span_;
  std::string text_;  // of the key, or of a value that is not passed on
  std::optional<std::string> name_;
  std::optional<std::string> early_arguments_;  // came before the name
  bool has_arguments_ = false;
  bool begun_ = false;  // the call was passed on
  std::string raw_;
};

}  // namespace minisgl
