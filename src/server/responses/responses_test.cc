// The stateless /v1/responses, from body to reply.

#include "server/responses/responses.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/api_fixture_for_test.h"

namespace minisgl::responses {
namespace {

using testing_util::update;

const std::string kTool = R"(,"tools":[{"type":"function","name":"add","parameters":{}}])";

class ResponsesTest : public testing_util::ApiFixture {
 protected:
  static std::string body(const std::string& more, const std::string& input = "\"hi\"") {
    return R"({"input":)" + input + more + "}";
  }
  ApiRequest request(const std::string& more) const {
    return open(open_response, body(more)).request;
  }
  std::string prompt(const std::string& all) const {
    return std::get<MarkedText>(open(open_response, all).request.prompts.at(0)).text;
  }
  std::string error(const std::string& more) const { return error_of(open_response, body(more)); }

  // A stream's events; checks their names and numbers.
  static std::vector<Json> events(const std::string& bytes) {
    std::vector<Json> all;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = bytes.find("\n\n", at);
      const std::string event = bytes.substr(at, end - at);
      const std::size_t data = event.find("\ndata: ");
      EXPECT_EQ(Json::parse(event.substr(data + 7))["sequence_number"], all.size());
      all.push_back(Json::parse(event.substr(data + 7)));
      EXPECT_EQ(event.substr(0, data), "event: " + all.back()["type"].get<std::string>());
      at = end + 2;
    }
    return all;
  }
};

TEST_F(ResponsesTest, FieldsArrive) {
  const ApiRequest r = request(R"(,"stream":true,"max_output_tokens":9,"temperature":0.5,
      "text":{"format":{"type":"json_schema","name":"n","schema":{"a":1}}},"store":true)");
  EXPECT_TRUE(r.stream);
  EXPECT_EQ(r.sampling.max_tokens, 9);
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.response_format.kind, ResponseFormat::Kind::kJsonSchema);
  EXPECT_EQ(r.sampling.response_format.text, "{\"a\":1}");
  EXPECT_EQ(request("").sampling.max_tokens, -1);
}

TEST_F(ResponsesTest, TheInputIsTheConversation) {
  EXPECT_EQ(prompt(body(R"(,"instructions":"be brief")")), "system:be brief\nuser:hi\nassistant:");
  const Json messages = chat_messages(nullptr, Json::parse(R"([
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"c"}]},
      {"type":"function_call","call_id":"i","name":"f","arguments":"{}"},
      {"type":"function_call","call_id":"j","name":"g","arguments":"{}"},
      {"type":"function_call_output","call_id":"i","output":"5"},
      {"role":"developer","content":"d"}])"));
  EXPECT_EQ(messages, Json::parse(R"([{"role":"user","content":"a\nb"},
      {"role":"assistant","content":"c","reasoning_content":"t","tool_calls":[
        {"id":"i","type":"function","function":{"name":"f","arguments":"{}"}},
        {"id":"j","type":"function","function":{"name":"g","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"i","content":"5"},{"role":"developer","content":"d"}])"));
}

TEST_F(ResponsesTest, BadBodiesAreRefusedAndNamed) {
  EXPECT_EQ(error_of(open_response, "{}"), "400 input: input is missing");
  EXPECT_EQ(error(R"(,"previous_response_id":"resp_1")"),
            "400 previous_response_id: previous_response_id is not supported: responses are not "
            "kept; send the whole conversation as input");
  EXPECT_EQ(error(R"(,"background":false)"), "no error");
  EXPECT_EQ(error(R"(,"tools":[{"type":"web_search"}])"),
            "400 tools[0].type: tools[0].type: only tools of type \"function\" are supported, not "
            "\"web_search\"");
  EXPECT_EQ(error_of(open_response, body("", R"([{"type":"item_reference","id":"x"}])")),
            "400 input[0].type: input[0].type: items of type \"item_reference\" are not supported "
            "here");
  EXPECT_EQ(
      error_of(open_response, body("", R"([{"role":"user","content":[{"type":"input_image"}]}])")),
      "400 input[0].content[0]: input[0].content[0]: parts of type \"input_image\" are not "
      "supported here");
}

TEST_F(ResponsesTest, AResponseIsOneObject) {
  Answer answer = this->answer(open_response, body(""));
  answer.add(0, update("Hel", 1));
  answer.add(0, update("lo", 2, FinishReason::kStop));
  const Json whole = Json::parse(answer.whole().body);
  EXPECT_EQ(whole["id"], "resp_1");
  EXPECT_EQ(whole["object"], "response");
  EXPECT_EQ(whole["created_at"], 99);
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["output"], Json::parse(R"([{"id":"msg_1_0","type":"message",
      "status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello",
      "annotations":[],"logprobs":[]}]}])"));
  EXPECT_EQ(whole["usage"], Json::parse(R"({"input_tokens":7,"input_tokens_details":
      {"cached_tokens":3},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},
      "total_tokens":9})"));
}

TEST_F(ResponsesTest, AnAnswerThatWasCutOffIsIncomplete) {
  Answer answer = this->answer(open_response, body(""));
  answer.add(0, update("Hel", 1, FinishReason::kLength));
  const Json whole = Json::parse(answer.whole().body);
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "incomplete");
}

TEST_F(ResponsesTest, AStreamHasItsEventsInOrder) {
  use({.dialect = {.calls = CallSyntax::kHermes, .reasoning = true}});
  Answer answer = this->answer(open_response, body(kTool + R"(,"stream":true)"));
  GenerateUpdate thought = update("<think>hm</think>", 1);
  thought.tokens = {1, 2};
  std::string bytes = answer.add(0, thought);
  bytes += answer.add(0, update("ok", 3));
  bytes += answer.add(0, update("<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":", 4));
  bytes += answer.add(0, update("1}}</tool_call>", 5));
  bytes += answer.add(0, update("", 6, FinishReason::kStop));
  const std::vector<Json> all = events(bytes);
  std::string types;
  for (const Json& event : all) types += event["type"].get<std::string>().substr(9) + " ";
  EXPECT_EQ(types,
            "created in_progress output_item.added content_part.added reasoning_text.delta "
            "reasoning_text.done content_part.done output_item.done "
            "output_item.added content_part.added output_text.delta output_text.done "
            "content_part.done output_item.done "
            "output_item.added function_call_arguments.delta function_call_arguments.delta "
            "function_call_arguments.done output_item.done completed ");
  EXPECT_EQ(all[10]["delta"], "ok");
  EXPECT_EQ(all[10]["output_index"], 1);
  EXPECT_EQ(all[10]["item_id"], all[8]["item"]["id"]);
  EXPECT_EQ(all[17]["arguments"], "{\"a\":1}");
  const Json& response = all.back()["response"];
  EXPECT_EQ(response["output"].size(), 3U);
  EXPECT_EQ(response["output"][2]["name"], "add");
  EXPECT_EQ(response["output"][2], all[18]["item"]);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
  EXPECT_EQ(all[0]["response"]["usage"], nullptr);
  EXPECT_EQ(all[0]["response"]["tools"][0]["name"], "add");
}

TEST_F(ResponsesTest, AnErrorEndsAStreamWithAnEvent) {
  Answer answer = this->answer(open_response, body(R"(,"stream":true)"));
  EXPECT_EQ(answer.fail(500, "broken"),
            "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":"
            "\"server_error\",\"message\":\"broken\",\"param\":null}\n\n");
}

}  // namespace
}  // namespace minisgl::responses
