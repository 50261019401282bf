// What a chat model writes, taken apart into reasoning, content and tool calls while it arrives.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/call_parser.h"
#include "chat/chat_piece.h"
#include "chat/reasoning_splitter.h"

namespace minisgl {

/// What to look for in an answer.
struct OutputFormat {
  CallSyntax calls = CallSyntax::kNone;
  std::string function = {};   ///< for CallSyntax::kArguments: the one that is called
  bool parallel_calls = true;  ///< else further calls than the first are left out
  bool reasoning = false;      ///< take <think>...</think> out
  bool in_reasoning = false;   ///< the prompt ended with <think>
};

/// The pieces do not depend on how the text was cut (neighbours of one kind count as one). One per
/// answer; not thread-safe.
class OutputParser {
 public:
  explicit OutputParser(const OutputFormat& format);

  /// What `text` completes.
  std::vector<ChatPiece> push(std::string_view text);
  /// The end of the answer: what was held back.
  std::vector<ChatPiece> finish();

 private:
  std::vector<ChatPiece> take();

  std::optional<ReasoningSplitter> reasoning_;
  std::unique_ptr<CallParser> calls_;  // null: all is content
  bool parallel_calls_;
  std::size_t num_calls_ = 0;
  ChatPieces pieces_;
};

}  // namespace minisgl
