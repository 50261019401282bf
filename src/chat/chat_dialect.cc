#include "chat/chat_dialect.h"

#include "chat/reasoning_splitter.h"
#include "chat/white_space.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

struct SyntaxName {
  std::string_view name;
  CallSyntax syntax;
};

// The first name of each syntax is ours.
constexpr SyntaxName kSyntaxes[] = {
    {"none", CallSyntax::kNone},          {"hermes", CallSyntax::kHermes},
    {"llama3_json", CallSyntax::kLlama3}, {"mistral", CallSyntax::kMistral},
    {"qwen", CallSyntax::kHermes},        {"qwen25", CallSyntax::kHermes},
    {"llama3", CallSyntax::kLlama3},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

CallSyntax syntax_of(std::string_view chat_template) {
  if (has(chat_template, "<tool_call>")) return CallSyntax::kHermes;
  if (has(chat_template, "[TOOL_CALLS]")) return CallSyntax::kMistral;
  // Llama 3.1's own templates answer calls in a turn of "ipython".
  if (has(chat_template, "<|python_tag|>") ||
      (has(chat_template, "ipython") && has(chat_template, "\"parameters\"")))
    return CallSyntax::kLlama3;
  return CallSyntax::kNone;
}

}  // namespace

ChatDialect choose_dialect(std::string_view chat_template, const DialectOptions& options) {
  ChatDialect dialect{.calls = syntax_of(chat_template),
                      .reasoning = has(chat_template, kReasoningEnd)};
  if (options.tool_call_parser != "auto") {
    const SyntaxName* found = nullptr;
    for (const SyntaxName& row : kSyntaxes)
      if (found == nullptr && row.name == options.tool_call_parser) found = &row;
    if (found == nullptr)
      throw Error("the tool call parser \"" + options.tool_call_parser +
                  "\" is not known; there are auto, none, hermes, llama3_json, mistral");
    dialect.calls = found->syntax;
  }
  if (const std::string& name = options.reasoning_parser; name == "none")
    dialect.reasoning = false;
  else if (name == "think" || name == "qwen3" || name == "deepseek_r1")
    dialect.reasoning = true;
  else if (name != "auto")
    throw Error("the reasoning parser \"" + name + "\" is not known; there are auto, none, think");
  return dialect;
}

std::string_view name(CallSyntax syntax) {
  for (const SyntaxName& row : kSyntaxes)
    if (row.syntax == syntax) return row.name;
  return "forced";
}

ReasoningStart reasoning_after(std::string_view prompt) {
  while (!prompt.empty() && is_white_space(prompt.back())) prompt.remove_suffix(1);
  if (prompt.ends_with(kReasoningBegin)) return ReasoningStart::kBegun;
  return prompt.ends_with(kReasoningEnd) ? ReasoningStart::kOver : ReasoningStart::kMayBegin;
}

bool has_special_tokens(CallSyntax syntax) {
  return syntax == CallSyntax::kMistral || syntax == CallSyntax::kLlama3;
}

}  // namespace minisgl
