#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "minisgl/error.h"
#include "testing/unpack.h"
#include "tokenizer/chat_messages.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

std::string read(const std::string& name) {
  std::ifstream file(std::string(MINISGL_TEST_DATA) + "/chat_templates/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::tm test_time() {
  std::tm now{};  // Friday, 2025-07-04 09:05:03
  now.tm_year = 125;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 3;
  now.tm_wday = 5;
  now.tm_yday = 184;
  return now;
}

ChatTemplate load(const std::string& name) {
  return ChatTemplate(read(name + ".jinja"), test_time);
}

// The texts inside the spans; checks that the spans are well-formed.
std::vector<std::string> marked_texts(const MarkedText& m) {
  std::vector<std::string> texts;
  std::size_t end = 0;
  for (const MarkedText::Span& span : m.message_spans) {
    EXPECT_LT(span.begin, span.end);
    EXPECT_TRUE(texts.empty() || span.begin > end);
    EXPECT_LE(span.end, m.text.size());
    end = span.end;
    texts.push_back(m.text.substr(span.begin, span.end - span.begin));
  }
  return texts;
}

// `messages` is an array, or one message.
ChatInput input_of(const Json& messages) {
  ChatInput input;
  input.messages = messages.is_array() ? messages : Json::array({messages});
  return input;
}

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

class TemplateCases : public testing::TestWithParam<const char*> {};

TEST_P(TemplateCases, RenderAsInJinja2) {
  const std::string name = GetParam();
  const ChatTemplate chat_template = load(name);
  const Json inputs = Json::parse(read("inputs.json"));
  std::istringstream lines(testing_util::read_unpacked(std::string(MINISGL_TEST_DATA) +
                                                       "/chat_templates/cases/" + name + ".jsonl"));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const Json c = Json::parse(line);
    const auto part = [&](const char* key) { return inputs[key][c[key].get<std::size_t>()]; };
    ChatInput input;
    input.messages = part("messages");
    input.tools = part("tools");
    input.kwargs = part("kwargs");
    if (input.kwargs.contains("documents")) {
      input.documents = input.kwargs["documents"];
      input.kwargs.erase("documents");
    }
    input.add_generation_prompt = c["add_generation_prompt"];
    input.bos_token = part("specials").value("bos_token", "");
    input.eos_token = part("specials").value("eos_token", "");
    ++count;
    try {
      const MarkedText got = chat_template.render(input);
      ASSERT_TRUE(c.contains("expected")) << c["case"] << " should fail with " << c["error"];
      EXPECT_EQ(got.text, c["expected"].get<std::string>()) << c["case"];
      marked_texts(got);
    } catch (const RequestError& e) {
      ASSERT_TRUE(c.contains("error")) << c["case"] << ": " << e.what();
      const std::string message = e.what();
      EXPECT_TRUE(message.ends_with(c["error"].get<std::string>())) << c["case"] << ": " << message;
      EXPECT_EQ(e.param(), "messages");
    }
  }
  EXPECT_GE(count, 104);
}

INSTANTIATE_TEST_SUITE_P(All, TemplateCases,
                         testing::Values("chatml", "command_r", "deepseek", "gemma2", "gemma3",
                                         "granite", "llama2", "llama3", "mistral3",
                                         "mistral_common_v13_tekken", "mistral_common_v1_spm",
                                         "mistral_common_v3_spm", "mistral_common_v7_spm", "phi3",
                                         "phi4", "qwen2_5", "qwen3", "smollm2", "smollm3", "vicuna",
                                         "zephyr"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ChatTemplate, SpansAreExactlyTheContents) {
  const Json messages = {{{"role", "system"}, {"content", "Be kind."}},
                         user("Hi <|im_end|> there")};
  const MarkedText got = load("smollm2").render(input_of(messages));
  EXPECT_EQ(
      got.text,
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|> there<|im_end|>\n"
      "<|im_start|>assistant\n");
  EXPECT_EQ(marked_texts(got), (std::vector<std::string>{"Be kind.", "Hi <|im_end|> there"}));
}

TEST(ChatTemplate, WhatATemplateTakesFromAMessageStaysMarked) {
  // Trimmed, and the thinking cut away.
  const Json messages = {
      user("a\n"),
      {{"role", "assistant"}, {"content", "<think>\nplan <|im_end|>\n</think>\n\nans <|im_end|>"}},
      user("<|im_start|>")};
  EXPECT_EQ(marked_texts(load("qwen3").render(input_of(messages))),
            (std::vector<std::string>{"a\n", "ans <|im_end|>", "<|im_start|>"}));
  EXPECT_EQ(marked_texts(load("llama3").render(input_of(user("  x <|eot_id|> ")))),
            (std::vector<std::string>{"x <|eot_id|>"}));
}

TEST(ChatTemplate, ToolsAreMarkedInsideTheirJson) {
  ChatInput input = input_of(user("hi"));
  input.tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "description": "ends </tools> \"it\""}}])");
  const MarkedText got = load("qwen3").render(input);
  // Keys and values, without the quotes and punctuation around them.
  EXPECT_EQ(marked_texts(got),
            (std::vector<std::string>{"type", "function", "function", "name", "f", "description",
                                      "ends </tools> \\\"it\\\"", "hi"}));
}

TEST(ChatTemplate, ARoleIsMarkedOnlyWhenItIsNotAKnownOne) {
  const ChatTemplate t("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}");
  Json messages = Json::array();
  for (const char* role : {"system", "developer", "user", "assistant", "tool", "<|x|>"})
    messages.push_back({{"role", role}, {"content", "c"}});
  EXPECT_EQ(marked_texts(t.render(input_of(messages))),
            (std::vector<std::string>{"c", "c", "c", "c", "c", "<|x|>", "c"}));
}

TEST(ChatTemplate, KwargsAndDocumentsAreMarkedAndSpecialTokensAreNot) {
  const ChatTemplate t("{{ bos_token }}{{ style }}|{{ documents[0].text }}{{ eos_token }}");
  ChatInput input = input_of(user("x"));
  input.kwargs = {{"style", "<s>"}};
  input.documents = {{{"text", "</s>"}}};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  const MarkedText got = t.render(input);
  EXPECT_EQ(got.text, "<s><s>|</s></s>");
  EXPECT_EQ(got.message_spans, (std::vector<MarkedText::Span>{{3, 6}, {7, 11}}));
}

// Case TPL-1.
TEST(ChatTemplate, OnlyFalseItselfSwitchesQwen3sThinkingOff) {
  const ChatTemplate t = load("qwen3");
  const std::string plain = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  ChatInput input = input_of(user("hi"));
  EXPECT_EQ(t.render(input).text, plain);
  for (const Json& value : {Json(true), Json(nullptr), Json("false"), Json(0)}) {
    input.kwargs = {{"enable_thinking", value}};
    EXPECT_EQ(t.render(input).text, plain) << value;
  }
  input.kwargs = {{"enable_thinking", false}};
  EXPECT_EQ(t.render(input).text, plain + "<think>\n\n</think>\n\n");
}

// Case TPL-2.
TEST(ChatTemplate, Qwen3DropsOldThinkingAndShowsToolResults) {
  const ChatTemplate t = load("qwen3");
  const Json history = {user("q1"),
                        {{"role", "assistant"}, {"content", "<think>\nplan\n</think>\n\nans1"}},
                        user("q2")};
  EXPECT_EQ(t.render(input_of(history)).text,
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nans1<|im_end|>\n"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n");
  const Json tools = normalise_messages(Json::parse(R"([
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
       "function": {"name": "get_t", "arguments": "{\"city\": \"Zürich\"}"}}]},
      {"role": "tool", "content": "21"}, {"role": "tool", "content": "22"}])"));
  EXPECT_EQ(t.render(input_of(tools)).text,
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
            "{\"name\": \"get_t\", \"arguments\": {\"city\": \"Zürich\"}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n21\n</tool_response>\n<tool_response>\n22\n"
            "</tool_response><|im_end|>\n<|im_start|>assistant\n");
}

std::string render_plain(const std::string& source) {
  return ChatTemplate(source).render(input_of(user("x"))).text;
}

// Case TPL-3.
TEST(ChatTemplate, TojsonIsTransformers) {
  EXPECT_EQ(render_plain(R"({{ {'b':1,'a':"<é & 'x'>",'u':none,'t':true,'f':1.0}|tojson }})"),
            R"({"b": 1, "a": "<é & 'x'>", "u": null, "t": true, "f": 1.0})");
  EXPECT_EQ(render_plain("{{ {'b':[1,2],'a':{}}|tojson(indent=2) }}"),
            "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": {}\n}");
  EXPECT_EQ(render_plain("{{ {'s':'a/b','c':'\\x07'}|tojson(ensure_ascii=False) }}"),
            "{\"s\": \"a/b\", \"c\": \"\\u0007\"}");
}

// Case TPL-4.
TEST(ChatTemplate, BlanksAroundTagsGoAsInTransformers) {
  EXPECT_EQ(render_plain("A\n{% if true %}\n  B\n{% endif %}\nC\n"), "A\n  B\nC");
  EXPECT_EQ(render_plain("    {% set x = 1 %}\n  [{{ x }}]\n"), "  [1]");
  EXPECT_EQ(render_plain("a {%- if true %} b {% endif -%} c"), "a b c");
  EXPECT_EQ(render_plain("{# c #}\nX"), "X");
  EXPECT_EQ(render_plain("A\n\n"), "A\n");
  EXPECT_EQ(render_plain("  {%- if true %}\n    x\n  {%- endif %}\n"), "    x");
}

TEST(ChatTemplate, ErrorsAreAnswersToTheRequest) {
  const auto message_of = [](const std::string& source) -> std::string {
    try {
      return render_plain(source);
    } catch (const RequestError& e) {
      EXPECT_EQ(e.param(), "messages");
      return e.what();
    }
  };
  EXPECT_EQ(message_of("{{ raise_exception('Roles must alternate') }}"), "Roles must alternate");
  EXPECT_EQ(message_of("\n{{ messages[0].content + 1 }}"),
            "chat template, line 2: can only concatenate str (not \"int\") to str");
}

TEST(ChatTemplate, ATemplateThatCannotBeParsedIsAnErrorAtOnce) {
  try {
    const ChatTemplate t("ok\n{% include 'other' %}");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "chat template, line 2: the statement 'include' is not supported: a chat template "
                 "is one text, without other files");
  }
}

TEST(ChatTemplate, DeepInputIsRefused) {
  Json deep = "x";
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  ChatInput input = input_of({{"role", "user"}, {"content", deep}});
  try {
    ChatTemplate("x").render(input);
    FAIL();
  } catch (const RequestError& e) {
    EXPECT_STREQ(e.what(), "chat template: values are nested deeper than 200 levels");
  }
}

TEST(ChatTemplate, TellsTheTimeOfTheSystem) {
  const std::string year = render_plain("{{ '' ~ strftime_now('%Y') }}");
  EXPECT_EQ(year.size(), 4U);
  EXPECT_GE(std::stoi(year), 2025);
}

TEST(ChatTemplate, KnowsTheRolesThatItMentions) {
  EXPECT_TRUE(ChatTemplate("{{ 'developer' }}").knows_role("developer"));
  EXPECT_FALSE(ChatTemplate("{{ 'system' }}").knows_role("developer"));
}

}  // namespace
}  // namespace minisgl
