// How a model's chats are written, as far as its answers are concerned.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "chat/call_parser.h"

namespace minisgl {

struct ChatDialect {
  CallSyntax calls = CallSyntax::kNone;
  bool reasoning = false;  ///< it may think aloud, between <think> and </think>
  /// It may do so before a constrained answer, too: its vocabulary has these tags as tokens.
  bool reasoning_before_formats = false;

  bool operator==(const ChatDialect&) const = default;
};

/// What an operator may say; "auto" is what the chat template shows.
struct DialectOptions {
  std::string tool_call_parser = "auto";  ///< "none", "hermes", "llama3_json", "mistral"
  std::string reasoning_parser = "auto";  ///< "none", "think"
};

/// Throws Error for a name that is not known. Some names of other engines are taken as well:
/// "qwen", "qwen25", "llama3", "qwen3", "deepseek_r1".
ChatDialect choose_dialect(std::string_view chat_template, const DialectOptions& options);

std::string_view name(CallSyntax syntax);

/// What a rendered prompt says about the reasoning of its answer.
enum class ReasoningStart : std::uint8_t {
  kOver,      ///< there is none to come: the prompt ends with </think>
  kMayBegin,  ///< the answer may begin with <think>
  kBegun,     ///< the prompt ends with <think>
};
ReasoningStart reasoning_after(std::string_view prompt);

/// Whether calls in this syntax begin with a token that is special, and so is not text otherwise.
bool has_special_tokens(CallSyntax syntax);

}  // namespace minisgl
