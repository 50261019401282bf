#include "tokenizer/chat_messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

std::string normalised(const std::string& messages, NormaliseOptions options = {}) {
  return normalise_messages(Json::parse(messages), options).dump();
}

// "param | message"
std::string error_of(const std::string& messages) {
  try {
    return "no error, but: " + normalised(messages);
  } catch (const RequestError& e) {
    return e.param() + " | " + e.what();
  }
}

TEST(ChatMessages, TextPartsAreJoinedWithLineBreaks) {
  EXPECT_EQ(normalised(R"([{"role":"user","content":[{"type":"text","text":"Add "},
                           {"type":"text","text":"2 and 3"}]}])"),
            R"([{"role":"user","content":"Add \n2 and 3"}])");
  EXPECT_EQ(normalised(R"([{"role":"user","content":["a","b"]}])"),
            R"([{"role":"user","content":"a\nb"}])");
}

TEST(ChatMessages, NoContentIsEmptyContent) {
  EXPECT_EQ(normalised(R"([{"role":"assistant","content":null},{"role":"user","content":[]}])"),
            R"([{"role":"assistant","content":""},{"role":"user","content":""}])");
  EXPECT_EQ(normalised(R"([{"role":"assistant","tool_calls":[]}])"),
            R"([{"role":"assistant","tool_calls":[],"content":""}])");
}

TEST(ChatMessages, ArgumentsOfCallsBecomeObjects) {
  const auto with = [](const std::string& arguments) {
    return R"([{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",)"
           R"("function":{"name":"add","arguments":)" +
           arguments + "}}]}]";
  };
  EXPECT_EQ(normalised(with(R"("{\"b\":3,\"a\":2}")")), with(R"({"b":3,"a":2})"));
  EXPECT_EQ(normalised(with(R"({"a":2})")), with(R"({"a":2})"));
  EXPECT_EQ(normalised(with(R"("")")), with("{}"));
  EXPECT_EQ(normalised(with("null")), with("{}"));
  EXPECT_EQ(error_of(with(R"("{a")")),
            "messages[0].tool_calls[0] | messages[0].tool_calls[0].function.arguments is not valid "
            "JSON: \"{a\"");
}

TEST(ChatMessages, NullFieldsAreDropped) {
  EXPECT_EQ(normalised(R"([{"role":"assistant","refusal":null,"content":"x","tool_calls":null}])"),
            R"([{"role":"assistant","content":"x"}])");
}

TEST(ChatMessages, DeveloperIsSystemOnRequest) {
  const std::string messages = R"([{"role":"developer","content":"x"}])";
  EXPECT_EQ(normalised(messages), messages);
  EXPECT_EQ(normalised(messages, {.developer_as_system = true}),
            R"([{"role":"system","content":"x"}])");
}

TEST(ChatMessages, OtherFieldsAndTheOrderOfKeysStay) {
  const std::string messages = R"([{"name":"bob","role":"user","content":"x","zz":[1,{"q":null}]},)"
                               R"({"role":"tool","tool_call_id":"c1","content":"5"}])";
  EXPECT_EQ(normalised(messages), messages);
}

TEST(ChatMessages, ErrorsNameThePlaceAndWhatIsThere) {
  EXPECT_EQ(error_of("[]"), "messages | messages must not be empty");
  EXPECT_EQ(error_of("\"hi\""), "messages | messages must be an array of objects, found \"hi\"");
  EXPECT_EQ(error_of("[5]"), "messages[0] | messages[0] must be an object, found 5");
  EXPECT_EQ(
      error_of(R"([{"role":"user","content":"a"},{"role":"critic","content":"x"}])"),
      "messages[1].role | messages[1].role must be system, developer, user, assistant or tool, "
      "found \"critic\"");
  EXPECT_EQ(
      error_of(R"([{"content":"x"}])"),
      "messages[0].role | messages[0].role must be system, developer, user, assistant or tool, "
      "found none");
  EXPECT_EQ(error_of(R"([{"role":"user"}])"), "messages[0] | messages[0]: \"content\" is missing");
  EXPECT_EQ(
      error_of(R"([{"role":"user","content":7}])"),
      "messages[0].content | messages[0].content must be a string, an array of parts or null, "
      "found 7");
  EXPECT_EQ(
      error_of(R"([{"role":"user","content":[{"type":"text","text":"a"},)"
               R"({"type":"image_url","image_url":{"url":"u"}}]}])"),
      "messages[0].content[1] | messages[0].content[1]: content parts of type \"image_url\" are "
      "not supported: this model reads text only");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "messages[0].content[0] | messages[0].content[0]: a content part of type \"text\" must "
            "have a string \"text\"");
  EXPECT_EQ(error_of(R"([{"role":"assistant","content":"","tool_calls":[{"id":"1"}]}])"),
            "messages[0].tool_calls[0] | messages[0].tool_calls[0]: a tool call must be an object "
            "with a \"function\"");
}

}  // namespace
}  // namespace minisgl
