// Tool calls in an answer, in the syntax of a model family.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "chat/chat_piece.h"

namespace minisgl {

enum class CallSyntax : std::uint8_t {
  kNone,     ///< there are no calls
  kHermes,   ///< <tool_call>{"name": "f", "arguments": {...}}</tool_call>: Hermes, Qwen 2.5, Qwen 3
  kLlama3,   ///< the answer is {"name": "f", "parameters": {...}}; several are separated by ";"
  kMistral,  ///< [TOOL_CALLS] [{"name": "f", "arguments": {...}}, ...], or [TOOL_CALLS]f[ARGS]{...}
  kList,     ///< the answer is [{"name": "f", "parameters": {...}}, ...]: a call was required
  kArguments,  ///< the answer is the arguments of one function: its call was required
};

/// Takes calls out of an answer that arrives byte by byte; what is no call is content. How the
/// answer was cut into pieces makes no difference. One per answer.
class CallParser {
 public:
  virtual ~CallParser() = default;
  virtual void push(char c, ChatPieces& pieces) = 0;
  /// The end of the answer: a call that was cut off stays one if its name and a part of its
  /// arguments were there, else its text is content.
  virtual void finish(ChatPieces& pieces) = 0;
};

/// `function`: for kArguments, the one that is called.
std::unique_ptr<CallParser> make_call_parser(CallSyntax syntax, const std::string& function);

}  // namespace minisgl
