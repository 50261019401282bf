#include "llm/sampling_json.h"

#include <gtest/gtest.h>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

std::string error_of(const char* text) {
  try {
    sampling_from_json(Json::parse(text), {});
  } catch (const RequestError& e) {
    return e.what();
  }
  return "";
}

TEST(SamplingJsonTest, FieldsThatAreSetReplaceTheDefaultsAndNullDoesNot) {
  const SamplingParams p = sampling_from_json(
      Json::parse(
          R"({"temperature":0.5,"top_k":7,"seed":3,"max_tokens":null,"stop":"x","stop_token_ids":[1,2]})"),
      {.max_tokens = 5});
  EXPECT_EQ(p.temperature, 0.5);
  EXPECT_EQ(p.top_k, 7);
  EXPECT_EQ(p.seed, 3U);
  EXPECT_EQ(p.max_tokens, 5);
  EXPECT_EQ(p.stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(p.stop_token_ids, (std::vector<std::int32_t>{1, 2}));
}

TEST(SamplingJsonTest, AWrongTypeOrUnknownNameIsNamed) {
  EXPECT_EQ(error_of(R"({"top_k":"8"})"), "\"top_k\" must be an integer, not \"8\"");
  EXPECT_EQ(error_of(R"({"ignore_eos":1})"), "\"ignore_eos\" must be true or false, not 1");
  EXPECT_NE(error_of(R"({"top_q":1})")
                .find("\"top_q\" is not a sampling parameter; known are temperature"),
            std::string::npos);
  EXPECT_NE(error_of(R"([1])").find("must be an object"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
