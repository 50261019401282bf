#include "chat/chat_dialect.h"

#include <gtest/gtest.h>

#include "minisgl/error.h"

namespace minisgl {
namespace {

TEST(ChatDialectTest, TheTemplateShowsHowCallsAndReasoningAreWritten) {
  const auto chosen = [](const char* chat_template) { return choose_dialect(chat_template, {}); };
  EXPECT_EQ(chosen("{{ '<tool_call>\\n' }} {{ '</think>' }}"),
            (ChatDialect{.calls = CallSyntax::kHermes, .reasoning = true}));
  EXPECT_EQ(chosen("{{ \"[TOOL_CALLS] [\" }}"), (ChatDialect{.calls = CallSyntax::kMistral}));
  EXPECT_EQ(chosen("{{ \"<|python_tag|>\" }}"), (ChatDialect{.calls = CallSyntax::kLlama3}));
  EXPECT_EQ(chosen("{%- if role == 'ipython' %}{{ '{\"name\": ' + '\"parameters\": ' }}"),
            (ChatDialect{.calls = CallSyntax::kLlama3}));
  EXPECT_EQ(chosen("{{ message.content }}"), ChatDialect{});
}

TEST(ChatDialectTest, TheOperatorsChoiceWins) {
  EXPECT_EQ(choose_dialect("<tool_call> </think>",
                           {.tool_call_parser = "mistral", .reasoning_parser = "none"}),
            (ChatDialect{.calls = CallSyntax::kMistral}));
  EXPECT_EQ(choose_dialect("", {.tool_call_parser = "qwen25", .reasoning_parser = "deepseek_r1"}),
            (ChatDialect{.calls = CallSyntax::kHermes, .reasoning = true}));
  EXPECT_EQ(choose_dialect("<tool_call>", {.tool_call_parser = "none"}), ChatDialect{});
}

TEST(ChatDialectTest, UnknownNamesAreRefused) {
  const auto error = [](const DialectOptions& options) -> std::string {
    try {
      choose_dialect("", options);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({.tool_call_parser = "pythonic"}),
            "the tool call parser \"pythonic\" is not known; there are auto, none, hermes, "
            "llama3_json, mistral");
  EXPECT_EQ(error({.reasoning_parser = "loud"}),
            "the reasoning parser \"loud\" is not known; there are auto, none, think");
}

TEST(ChatDialectTest, APromptMayEndInATagOfReasoning) {
  using Start = ReasoningStart;
  EXPECT_EQ(reasoning_after("<|im_start|>assistant\n<think>\n"), Start::kBegun);
  EXPECT_EQ(reasoning_after("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Start::kOver);
  EXPECT_EQ(reasoning_after("<|im_start|>assistant\n"), Start::kMayBegin);
  EXPECT_EQ(reasoning_after(""), Start::kMayBegin);
}

}  // namespace
}  // namespace minisgl
