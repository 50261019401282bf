// Anthropic's API, from body to reply.

#include "server/anthropic/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api_fixture_for_test.h"

namespace minisgl::anthropic {
namespace {

using testing_util::update;

const std::string kTool =
    R"(,"tools":[{"name":"add","description":"adds","input_schema":{"type":"object"}}])";

class MessagesTest : public testing_util::ApiFixture {
 protected:
  static std::string body(const std::string& more,
                          const std::string& messages = R"([{"role":"user","content":"hi"}])") {
    return R"({"model":"m","max_tokens":9,"messages":)" + messages + more + "}";
  }
  std::string prompt(const std::string& all) const {
    return std::get<MarkedText>(open(open_messages, all).request.prompts.at(0)).text;
  }
  std::string error(const std::string& more) const { return error_of(open_messages, body(more)); }

  // Names and data of a stream's events; checks that both agree.
  static std::vector<Json> events(const std::string& bytes) {
    std::vector<Json> all;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = bytes.find("\n\n", at);
      const std::string event = bytes.substr(at, end - at);
      const std::size_t data = event.find("\ndata: ");
      all.push_back(Json::parse(event.substr(data + 7)));
      EXPECT_EQ(event.substr(0, data), "event: " + all.back()["type"].get<std::string>());
      at = end + 2;
    }
    return all;
  }
};

TEST_F(MessagesTest, FieldsArrive) {
  const ApiRequest r = open(open_messages, body(R"(,"stream":true,"temperature":0.5,"top_k":3,
      "top_p":0.5,"stop_sequences":["x","y"],"metadata":{"user_id":"u"},"seed":5)"))
                           .request;
  EXPECT_TRUE(r.stream);
  EXPECT_EQ(r.sampling.max_tokens, 9);
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.top_k, 3);
  EXPECT_EQ(r.sampling.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(r.sampling.seed, 5U);
}

TEST_F(MessagesTest, SystemAndBlocksBecomeMessagesOfTheTemplate) {
  EXPECT_EQ(prompt(body(R"(,"system":"be brief")")),
            "system:be brief\nuser:hi\nkwargs:{\"enable_thinking\":false}\nassistant:");
  EXPECT_EQ(
      prompt(body(
          R"(,"thinking":{"type":"enabled","budget_tokens":1024},
                     "system":[{"type":"text","text":"a"},{"type":"text","text":"b"}])",
          R"([{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]},
           {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
             {"type":"text","text":"e"},{"type":"tool_use","id":"i","name":"f","input":{"a":1}}]},
           {"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":"5"},
             {"type":"tool_result","tool_use_id":"j","content":[{"type":"text","text":"6"}]},
             {"type":"text","text":"g"}]}])")),
      "system:a\nb\nuser:c\nd\nassistant:e\ntool:5\ntool:6\nuser:g\n"
      "kwargs:{\"enable_thinking\":true}\nassistant:");
}

TEST_F(MessagesTest, AMessageWithoutBlocksIsAnEmptyOne) {
  const std::string kwargs = "kwargs:{\"enable_thinking\":false}\n";
  EXPECT_EQ(prompt(body("", R"([{"role":"user","content":[]}])")),
            "user:\n" + kwargs + "assistant:");
  EXPECT_EQ(prompt(body("", R"([{"role":"assistant","content":[]}])")),
            "assistant:\n" + kwargs + "assistant:");
}

TEST_F(MessagesTest, TheAssistantsLastWordsAreContinued) {
  EXPECT_TRUE(prompt(body("", R"([{"role":"user","content":"a"},
                                  {"role":"assistant","content":"Once upon"}])"))
                  .ends_with("assistant:Once upon"));
}

TEST_F(MessagesTest, ToolsAndChoicesAreThoseOfOpenAi) {
  EXPECT_NE(prompt(body(kTool))
                .find(R"(tools:[{"type":"function","function":{"name":"add","description":"adds",)"
                      R"("parameters":{"type":"object"}}}])"),
            std::string::npos);
  const auto format = [&](const std::string& choice) {
    return open(open_messages, body(kTool + R"(,"tool_choice":)" + choice))
        .request.sampling.response_format;
  };
  EXPECT_EQ(format(R"({"type":"auto"})").kind, ResponseFormat::Kind::kText);
  EXPECT_EQ(
      Json::parse(format(R"({"type":"any","disable_parallel_tool_use":true})").text)["maxItems"],
      1);
  EXPECT_EQ(Json::parse(format(R"({"type":"tool","name":"add"})").text)["type"], "object");
}

TEST_F(MessagesTest, BadBodiesAreRefusedAndNamed) {
  EXPECT_EQ(error_of(open_messages, R"({"messages":[{"role":"user","content":"a"}]})"),
            "400 max_tokens: max_tokens is missing");
  EXPECT_EQ(error_of(open_messages, R"({"max_tokens":1})"), "400 messages: messages is missing");
  EXPECT_EQ(error_of(open_messages, body("", "[]")),
            "400 messages: messages: an array of messages that is not empty is expected");
  EXPECT_EQ(error_of(open_messages, body("", R"([{"role":"robot","content":"a"}])")),
            "400 messages[0].role: messages[0].role: user or assistant is expected, not "
            "\"robot\"");
  EXPECT_EQ(error_of(open_messages,
                     body("", R"([{"role":"user","content":[{"type":"image","source":{}}]}])")),
            "400 messages[0].content[0]: messages[0].content[0]: content blocks of type \"image\" "
            "are not supported here");
  EXPECT_EQ(error(R"(,"tools":[{"type":"web_search_20250305","name":"web_search"}])"),
            "400 tools[0].type: tools[0].type: tools of type \"web_search_20250305\" are not "
            "supported here");
  EXPECT_EQ(error(R"(,"tools":[{"name":"f"}])"),
            "400 tools[0].input_schema: tools[0].input_schema: a JSON schema, an object, is "
            "expected, not null");
  EXPECT_EQ(error(R"(,"tool_choice":{"type":"auto "})"),
            "400 tool_choice.type: tool_choice.type must be auto, any, tool or none, not "
            "\"auto \"");
  EXPECT_EQ(error(R"(,"stop_sequences":[5])"),
            "400 stop_sequences: stop_sequences must be strings that are not empty, not 5");
}

TEST_F(MessagesTest, ErrorsHaveAnthropicsShape) {
  EXPECT_EQ(error_reply(404, "no").body,
            R"({"type":"error","error":{"type":"not_found_error","message":"no"}})");
  EXPECT_EQ(error_reply(500, "no").status, 500);
  EXPECT_NE(error_reply(503, "no").body.find("overloaded_error"), std::string::npos);
}

TEST_F(MessagesTest, AMessageIsOneObject) {
  Answer answer = this->answer(open_messages, body(""));
  answer.add(0, update("Hel", 1));
  answer.add(0, update("lo", 2, FinishReason::kStop));
  EXPECT_EQ(answer.whole().body,
            R"({"id":"msg_1","type":"message","role":"assistant","model":"m",)"
            R"("content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn",)"
            R"("stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":3,"output_tokens":2}})");
}

TEST_F(MessagesTest, ReasonsOfTheEnd) {
  const auto reason = [&](GenerateUpdate last) {
    Answer answer = this->answer(open_messages, body(""));
    answer.add(0, last);
    const Json message = Json::parse(answer.whole().body);
    return std::pair(message["stop_reason"], message["stop_sequence"]);
  };
  EXPECT_EQ(reason(update("", 1, FinishReason::kLength)),
            (std::pair<Json, Json>("max_tokens", nullptr)));
  GenerateUpdate stop = update("", 1, FinishReason::kStop);
  stop.stop_reason = std::string("END");
  EXPECT_EQ(reason(stop), (std::pair<Json, Json>("stop_sequence", "END")));
  stop.stop_reason = TokenId{2};
  EXPECT_EQ(reason(stop), (std::pair<Json, Json>("end_turn", nullptr)));
}

TEST_F(MessagesTest, ThinkingTextAndCallsAreBlocks) {
  use({.dialect = {.calls = CallSyntax::kHermes, .reasoning = true}});
  Answer answer = this->answer(open_messages, body(kTool));
  answer.add(0, update("<think>hm</think>\nok\n<tool_call>{\"name\":\"add\",", 1));
  answer.add(0, update("\"arguments\":{\"a\":1}}</tool_call>", 2, FinishReason::kStop));
  const Json message = Json::parse(answer.whole().body);
  EXPECT_EQ(message["stop_reason"], "tool_use");
  ASSERT_EQ(message["content"].size(), 3U);
  EXPECT_EQ(message["content"][0]["thinking"], "hm");
  EXPECT_EQ(message["content"][1], (Json{{"type", "text"}, {"text", "ok"}}));
  EXPECT_EQ(message["content"][2]["name"], "add");
  EXPECT_EQ(message["content"][2]["input"], (Json{{"a", 1}}));
}

TEST_F(MessagesTest, AStreamHasItsEventsInOrder) {
  use({.dialect = {.calls = CallSyntax::kHermes}});
  Answer answer = this->answer(open_messages, body(kTool + R"(,"stream":true)"));
  std::string bytes = answer.add(0, update("o", 1));
  bytes += answer.add(0, update("k", 2));
  bytes += answer.add(0, update("<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":", 3));
  bytes += answer.add(0, update("1}}</tool_call>", 4));
  bytes += answer.add(0, update("", 5, FinishReason::kStop));
  const std::vector<Json> all = events(bytes);
  std::string types;
  for (const Json& event : all) types += event["type"].get<std::string>() + " ";
  EXPECT_EQ(types,
            "message_start content_block_start content_block_delta content_block_delta "
            "content_block_stop content_block_start content_block_delta content_block_delta "
            "content_block_stop message_delta message_stop ");
  EXPECT_EQ(all[0]["message"]["usage"]["input_tokens"], 4);
  EXPECT_EQ(all[2]["delta"], (Json{{"type", "text_delta"}, {"text", "o"}}));
  EXPECT_EQ(all[5]["index"], 1);
  EXPECT_EQ(all[5]["content_block"]["name"], "add");
  EXPECT_EQ(all[6]["delta"]["partial_json"].get<std::string>() +
                all[7]["delta"]["partial_json"].get<std::string>(),
            "{\"a\":1}");
  EXPECT_EQ(all[9]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(all[9]["usage"]["output_tokens"], 5);
}

TEST_F(MessagesTest, AnErrorEndsAStreamWithAnEvent) {
  Answer answer = this->answer(open_messages, body(R"(,"stream":true)"));
  EXPECT_EQ(answer.fail(503, "gone"),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
            "\"message\":\"gone\"}}\n\n");
}

TEST_F(MessagesTest, TokensAreCountedWithoutAnswering) {
  const HttpReply reply =
      count_tokens(R"({"model":"m","messages":[{"role":"user","content":"hi"}]})", context());
  const std::string prompt = "user:hi\nkwargs:{\"enable_thinking\":false}\nassistant:";
  EXPECT_EQ(Json::parse(reply.body)["input_tokens"], prompt.size());
}

}  // namespace
}  // namespace minisgl::anthropic
