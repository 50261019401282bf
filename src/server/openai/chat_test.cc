// Tool calls, reasoning and log-probabilities of chats, from body to reply.

#include "server/openai/chat.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server/api_fixture_for_test.h"

namespace minisgl::openai {
namespace {

using testing_util::update;

const std::string kTools =
    R"(,"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object",)"
    R"("properties":{"a":{"$ref":"#/$defs/N"}},"$defs":{"N":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"now"}}])";

class ChatTest : public testing_util::ApiFixture {
 protected:
  static std::string body(const std::string& more) {
    return R"({"messages":[{"role":"user","content":"hi"}])" + more + "}";
  }
  ApiRequest request(const std::string& more) const { return open(open_chat, body(more)).request; }
  std::string error(const std::string& more) const { return error_of(open_chat, body(more)); }
  std::string prompt(const std::string& more) const {
    return std::get<MarkedText>(request(more).prompts.at(0)).text;
  }
  // The message of an answer that consists of `texts`.
  Json message(const std::string& more, const std::vector<std::string>& texts) {
    return choice(more, texts)["message"];
  }
  Json choice(const std::string& more, const std::vector<std::string>& texts) {
    Answer answer = this->answer(open_chat, body(more));
    int tokens = 0;
    for (const std::string& text : texts) answer.add(0, update(text, ++tokens));
    answer.add(0, update("", ++tokens, FinishReason::kStop));
    return Json::parse(answer.whole().body)["choices"][0];
  }
  // The choices of all chunks of a stream.
  std::vector<Json> chunks(const std::string& more, const std::vector<std::string>& texts) {
    Answer answer = this->answer(open_chat, body(more + R"(,"stream":true)"));
    int tokens = 0;
    std::string events;
    for (const std::string& text : texts) events += answer.add(0, update(text, ++tokens));
    events += answer.add(0, update("", ++tokens, FinishReason::kStop));
    std::vector<Json> choices;
    for (std::size_t at = 0; (at = events.find("data: {", at)) != std::string::npos; ++at)
      choices.push_back(
          Json::parse(events.substr(at + 6, events.find('\n', at) - at - 6))["choices"][0]);
    return choices;
  }
};

TEST_F(ChatTest, CallsOfTheModelAreToolCallsOfTheMessage) {
  use({.dialect = {.calls = CallSyntax::kHermes}});
  const Json whole = choice(kTools, {"Let me ", "see.\n<tool_", "call>{\"name\": \"add\", ",
                                     "\"arguments\": {\"a\": 1}}</tool_call>"});
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], "Let me see.");
  ASSERT_EQ(whole["message"]["tool_calls"].size(), 1U);
  const Json& call = whole["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["id"].get<std::string>().size(), 9U);
  EXPECT_EQ(call["function"], (Json{{"name", "add"}, {"arguments", "{\"a\": 1}"}}));
  EXPECT_EQ(message(kTools, {"<tool_call>{\"name\":\"now\"}</tool_call>"})["content"], nullptr);
}

TEST_F(ChatTest, AStreamSendsTheNameFirstAndTheArgumentsAsTheyCome) {
  use({.dialect = {.calls = CallSyntax::kHermes}});
  const std::vector<Json> choices =
      chunks(kTools, {"<tool_call>{\"name\": \"add\", \"arguments\": {", "\"a\": 1", "}",
                      "}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>"});
  ASSERT_EQ(choices.size(), 7U);
  const Json& first = choices[0]["delta"];
  EXPECT_EQ(first["role"], "assistant");
  EXPECT_EQ(first["content"], nullptr);
  EXPECT_EQ(first["tool_calls"][0]["index"], 0);
  EXPECT_EQ(first["tool_calls"][0]["function"]["name"], "add");
  EXPECT_EQ(first["tool_calls"][0]["function"]["arguments"], "");
  std::string arguments;
  for (int i = 1; i <= 3; ++i) {
    const Json& call = choices[i]["delta"]["tool_calls"][0];
    EXPECT_FALSE(call.contains("id"));
    EXPECT_EQ(call["index"], 0);
    arguments += call["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(arguments, "{\"a\": 1}");
  EXPECT_EQ(choices[4]["delta"]["tool_calls"][0]["index"], 1);
  EXPECT_EQ(choices[5]["delta"]["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_NE(choices[4]["delta"]["tool_calls"][0]["id"], first["tool_calls"][0]["id"]);
  EXPECT_EQ(choices[6]["finish_reason"], "tool_calls");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(choices[i]["finish_reason"], nullptr);
}

TEST_F(ChatTest, WithoutToolsOrWithChoiceNoneNothingIsLookedFor) {
  use({.dialect = {.calls = CallSyntax::kHermes}});
  const std::string call = R"(<tool_call>{"name":"add","arguments":{}}</tool_call>)";
  EXPECT_EQ(message("", {call})["content"], call);
  EXPECT_EQ(message(kTools + R"(,"tool_choice":"none")", {call})["content"], call);
  EXPECT_EQ(prompt(kTools + R"(,"tool_choice":"none")"), "user:hi\nassistant:");
}

TEST_F(ChatTest, SyntaxThatBeginsWithASpecialTokenNeedsItInTheText) {
  EXPECT_TRUE(request(kTools).sampling.skip_special_tokens);
  use({.dialect = {.calls = CallSyntax::kMistral}});
  EXPECT_FALSE(request(kTools).sampling.skip_special_tokens);
  EXPECT_TRUE(request("").sampling.skip_special_tokens);
}

TEST_F(ChatTest, ARequiredCallIsConstrainedToTheToolsAndReadAsAList) {
  const std::string more = kTools + R"(,"tool_choice":"required")";
  const ResponseFormat format = request(more).sampling.response_format;
  EXPECT_EQ(format.kind, ResponseFormat::Kind::kJsonSchema);
  const Json schema = Json::parse(format.text);
  EXPECT_EQ(schema["type"], "array");
  EXPECT_EQ(schema["minItems"], 1);
  EXPECT_FALSE(schema.contains("maxItems"));
  EXPECT_EQ(schema["items"]["anyOf"][0]["properties"]["name"]["enum"], Json::array({"add"}));
  EXPECT_EQ(schema["items"]["anyOf"][0]["properties"]["parameters"]["properties"]["a"]["$ref"],
            "#/$defs/N");
  EXPECT_EQ(schema["$defs"]["N"]["type"], "integer") << "references are from the root";
  EXPECT_EQ(schema["items"]["anyOf"][1]["properties"]["parameters"]["type"], "object");
  EXPECT_EQ(Json::parse(request(more + R"(,"parallel_tool_calls":false)")
                            .sampling.response_format.text)["maxItems"],
            1);
  const Json whole = choice(more, {R"([{"name": "add", "parameters": {"a": 1}}, )",
                                   R"({"name": "now", "param)", R"(eters": {}}])"});
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], nullptr);
  ASSERT_EQ(whole["message"]["tool_calls"].size(), 2U);
  EXPECT_EQ(whole["message"]["tool_calls"][1]["function"]["name"], "now");
}

TEST_F(ChatTest, ANamedFunctionConstrainsTheAnswerToItsArguments) {
  const std::string more =
      kTools + R"(,"tool_choice":{"type":"function","function":{"name":"add"}})";
  const Json schema = Json::parse(request(more).sampling.response_format.text);
  EXPECT_EQ(schema["properties"]["a"]["$ref"], "#/$defs/N");
  const Json calls = message(more, {"{\"a\"", ": 5}"})["tool_calls"];
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0]["function"], (Json{{"name", "add"}, {"arguments", "{\"a\": 5}"}}));
}

TEST_F(ChatTest, ToolsAndChoicesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(error(R"(,"tools":[5])"), "400 tools[0]: tools[0]: a tool must be an object, not 5");
  EXPECT_EQ(error(R"(,"tools":[{"type":"web_search"}])"),
            "400 tools[0].type: tools[0].type: only tools of type \"function\" are supported, not "
            "\"web_search\"");
  EXPECT_EQ(error(R"(,"tools":[{"type":"function","function":{}}])"),
            "400 tools[0].function.name: tools[0].function.name: a function must have a name, a "
            "string that is not empty");
  EXPECT_EQ(error(R"(,"tools":[{"function":{"name":"f","parameters":[]}}])"),
            "400 tools[0].function.parameters: tools[0].function.parameters: a function's "
            "parameters must be a JSON schema, an object, not an array");
  EXPECT_EQ(error(R"(,"tool_choice":"required")"),
            "400 tool_choice: tool_choice forces a call, but there are no tools");
  EXPECT_EQ(error(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"sub"}})"),
            "400 tool_choice: tool_choice names \"sub\", which is not among the tools: add, now");
  EXPECT_EQ(error(kTools + R"(,"tool_choice":"always")"),
            "400 tool_choice: tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": "
            "\"function\", \"function\": {\"name\": ...}}, not \"always\"");
  EXPECT_EQ(error(kTools + R"(,"tool_choice":"required","response_format":{"type":"json_object"})"),
            "400 response_format: response_format cannot be kept together with a tool_choice that "
            "forces a call");
}

TEST_F(ChatTest, ReasoningIsAFieldOfItsOwn) {
  use({.dialect = {.reasoning = true}});
  const std::vector<std::string> texts{"<thi", "nk>\nhm", "\n</think>", "\n\nyes"};
  EXPECT_EQ(message("", texts),
            (Json{{"role", "assistant"}, {"content", "yes"}, {"reasoning_content", "hm"}}));
  EXPECT_EQ(message(R"(,"separate_reasoning":false)", texts)["content"],
            "<think>\nhm\n</think>\n\nyes");
  const std::vector<Json> choices = chunks("", texts);
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0]["delta"],
            (Json{{"role", "assistant"}, {"content", nullptr}, {"reasoning_content", "hm"}}));
  EXPECT_EQ(choices[1]["delta"], (Json{{"content", "yes"}}));
  EXPECT_EQ(choices[2]["finish_reason"], "stop");
}

TEST_F(ChatTest, APromptThatEndsInTheTagHasBegunTheReasoning) {
  use({.dialect = {.reasoning = true}, .prompt_end = "assistant:<think>\n"});
  EXPECT_EQ(message("", {"hm</think>", "yes"})["reasoning_content"], "hm");
  EXPECT_EQ(message("", {"hm"})["content"], nullptr) << "cut off while it thinks";
}

TEST_F(ChatTest, ReasoningComesBeforeAConstrainedAnswer) {
  using Start = ReasoningStart;
  const std::string json = R"(,"response_format":{"type":"json_object"})";
  const ChatDialect dialect{.reasoning = true, .reasoning_before_formats = true};
  use({.dialect = dialect, .prompt_end = "assistant:<think>\n"});
  EXPECT_EQ(request(json).reasoning, Start::kBegun);
  EXPECT_EQ(request(json).generate_request(0).reasoning, Start::kBegun);
  EXPECT_EQ(message(json, {"hm</think>", "{}"}),
            (Json{{"role", "assistant"}, {"content", "{}"}, {"reasoning_content", "hm"}}));
  const std::string forced =
      kTools + R"(,"tool_choice":{"type":"function","function":{"name":"add"}})";
  EXPECT_EQ(request(forced).reasoning, Start::kBegun);
  const Json call = message(forced, {"hm</think>", "{\"a\": 5}"});
  EXPECT_EQ(call["reasoning_content"], "hm");
  EXPECT_EQ(call["tool_calls"][0]["function"]["arguments"], "{\"a\": 5}");

  use({.dialect = dialect});
  EXPECT_EQ(request(json).reasoning, Start::kMayBegin);
  EXPECT_EQ(request(json + R"(,"separate_reasoning":false)").reasoning, Start::kOver)
      << "the content is what the format asks for";
  EXPECT_EQ(message(json, {"{}"})["content"], "{}") << "it need not";
  use({.dialect = dialect, .prompt_end = "assistant:<think>\n\n</think>\n\n"});
  EXPECT_EQ(request(json).reasoning, Start::kOver);
}

TEST_F(ChatTest, WithoutTokensForTheTagsConstrainedAnswersHaveNoReasoning) {
  use({.dialect = {.reasoning = true}, .prompt_end = "assistant:<think>\n"});
  const std::string json = R"(,"response_format":{"type":"json_object"})";
  EXPECT_EQ(message(json, {"{}"})["content"], "{}");
  EXPECT_EQ(request(json).reasoning, ReasoningStart::kOver);
}

TEST_F(ChatTest, AnAnswerMayGoOnWithTheLastMessage) {
  const auto text = [&](const std::string& content) {
    const std::string messages = R"({"messages":[{"role":"user","content":"a"},)"
                                 R"({"role":"assistant","content":")" +
                                 content + R"("}],"continue_final_message":true})";
    return std::get<MarkedText>(open(open_chat, messages).request.prompts.at(0)).text;
  };
  EXPECT_EQ(text("Once upon"), "user:a\nassistant:Once upon");
  EXPECT_EQ(error(R"(,"continue_final_message":true)"),
            "400 continue_final_message: continue_final_message needs a last message of the "
            "assistant whose content is a string");
}

TEST_F(ChatTest, LogProbabilitiesAreAskedForWithTwoFields) {
  EXPECT_EQ(request("").sampling.num_logprobs, std::nullopt);
  EXPECT_EQ(request(R"(,"logprobs":true)").sampling.num_logprobs, 0);
  EXPECT_EQ(request(R"(,"logprobs":true,"top_logprobs":20)").sampling.num_logprobs, 20);
  EXPECT_EQ(error(R"(,"top_logprobs":3)"),
            "400 top_logprobs: top_logprobs is allowed only together with \"logprobs\": true");
  EXPECT_EQ(error(R"(,"logprobs":true,"top_logprobs":21)"),
            "400 top_logprobs: top_logprobs must be an integer from 0 to 20, not 21");
}

TEST_F(ChatTest, EveryTokenOfTheTextHasItsLogProbability) {
  const auto with = [](GenerateUpdate u, const std::string& bytes) {
    TextLogprobs& position = u.logprobs.emplace_back();
    position.chosen = {.token = 1, .bytes = bytes, .logprob = -0.5};
    position.top.push_back({.token = 2, .bytes = "x", .logprob = -0.25});
    position.top.push_back(
        {.token = 3, .bytes = "y", .logprob = -std::numeric_limits<double>::infinity()});
    return u;
  };
  GenerateUpdate end = with(update("", 3, FinishReason::kStop), "</s>");
  end.stop_reason = TokenId{0};
  const std::string more = R"(,"logprobs":true,"top_logprobs":2)";
  Answer answer = this->answer(open_chat, body(more));
  answer.add(0, with(update("", 1), "\xe2\x82"));
  answer.add(0, with(update("\xe2\x82\xac", 2), "\xac"));
  answer.add(0, end);
  const Json content = Json::parse(answer.whole().body)["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U) << "the end token is no part of the text";
  EXPECT_EQ(content[0]["token"], "\xef\xbf\xbd") << "a part of a character";
  EXPECT_EQ(content[0]["bytes"], Json::array({0xe2, 0x82}));
  EXPECT_EQ(content[1]["bytes"], Json::array({0xac}));
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["top_logprobs"][0],
            (Json{{"token", "x"}, {"logprob", -0.25}, {"bytes", Json::array({120})}}));
  EXPECT_EQ(content[0]["top_logprobs"][1]["logprob"], -9999.0);

  Answer stream = this->answer(open_chat, body(more + R"(,"stream":true)"));
  EXPECT_EQ(stream.add(0, with(update("", 1), "\xe2\x82")), "") << "waits for its text";
  const std::string event = stream.add(0, with(update("\xe2\x82\xac", 2), "\xac"));
  EXPECT_EQ(Json::parse(event.substr(6))["choices"][0]["logprobs"]["content"], content);
}

}  // namespace
}  // namespace minisgl::openai
