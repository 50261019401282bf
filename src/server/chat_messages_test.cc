#include "server/chat_messages.h"

#include <gtest/gtest.h>

#include "minisgl/error.h"

namespace minisgl {
namespace {

Json normalize(const char* text) { return normalize_messages(Json::parse(text)); }

std::string error_of(const char* text) {
  try {
    normalize(text);
  } catch (const RequestError& e) {
    EXPECT_EQ(e.param(), "messages");
    return e.what();
  }
  return "no error";
}

TEST(ChatMessagesTest, TextPartsAreJoinedWithoutASeparator) {
  EXPECT_EQ(normalize(R"([{"role":"user","content":[{"type":"text","text":"Add "},
                          {"type":"text","text":"2 and 3"}]}])"),
            Json::parse(R"([{"role":"user","content":"Add 2 and 3"}])"));
}

TEST(ChatMessagesTest, AbsentNullAndEmptyContentAreTheEmptyString) {
  const Json expected = Json::parse(R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(normalize(R"([{"role":"assistant","content":null}])"), expected);
  EXPECT_EQ(normalize(R"([{"role":"assistant","content":[]}])"), expected);
  EXPECT_EQ(normalize(R"([{"role":"assistant"}])"), expected);
}

TEST(ChatMessagesTest, ArgumentsOfToolCallsBecomeObjects) {
  const Json result = normalize(R"([
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
       "function":{"name":"add","arguments":"{\"b\":2,\"a\":3}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"5"}])");
  EXPECT_EQ(result[0]["tool_calls"][0]["function"]["arguments"].dump(), R"({"b":2,"a":3})");
  EXPECT_EQ(result[1]["tool_call_id"], "c1") << "other fields stay";
}

TEST(ChatMessagesTest, ArgumentsThatAreNotAnObjectStayAsTheyAre) {
  const Json result = normalize(R"([{"role":"assistant","tool_calls":[
      {"function":{"name":"f","arguments":"{broken"}},{"function":{"name":"g"}}]}])");
  EXPECT_EQ(result[0]["tool_calls"][0]["function"]["arguments"], "{broken");
}

TEST(ChatMessagesTest, ErrorsNameTheMessage) {
  EXPECT_EQ(error_of("[]"), "messages must be an array of at least one message, not an empty one");
  EXPECT_EQ(error_of("{}"), "messages must be an array of at least one message, not an object");
  EXPECT_EQ(
      error_of(R"([{"role":"robot","content":"x"}])"),
      "messages[0].role must be one of system, developer, user, assistant, tool, not \"robot\"");
  EXPECT_EQ(error_of(R"([{"role":"user","content":"x"},{"content":"x"}])"),
            "messages[1].role must be one of system, developer, user, assistant, tool, not absent");
  EXPECT_EQ(error_of(R"(["hi"])"), "messages[0] must be an object, not \"hi\"");
  EXPECT_EQ(error_of(R"([{"role":"user","content":5}])"),
            "messages[0].content must be a string or an array of parts, not 5");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "messages[0].content[0] is of type \"image_url\": the model takes text only");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0].text must be a string");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[7]}])"),
            "messages[0].content[0] must be an object with a \"type\"");
  EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":[{"id":"x"}]}])"),
            "messages[0].tool_calls must hold objects with a \"function\" that has a \"name\"");
}

}  // namespace
}  // namespace minisgl
