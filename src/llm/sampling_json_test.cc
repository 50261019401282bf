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

TEST(SamplingJsonTest, EveryParameterIsRead) {
  const SamplingParams p = sampling_from_json(Json::parse(R"({
    "top_p":0.25,"min_p":0.125,"presence_penalty":0.5,"frequency_penalty":-0.5,
    "repetition_penalty":1.25,"logit_bias":{"7":-100,"11":2.5},"min_tokens":3,"ignore_eos":true,
    "include_stop_str_in_output":true,"skip_special_tokens":false,"num_logprobs":0,
    "prompt_logprobs":5,"response_format":{"type":"json_object"}})"),
                                              {});
  EXPECT_EQ(p.top_p, 0.25);
  EXPECT_EQ(p.min_p, 0.125);
  EXPECT_EQ(p.presence_penalty, 0.5);
  EXPECT_EQ(p.frequency_penalty, -0.5);
  EXPECT_EQ(p.repetition_penalty, 1.25);
  EXPECT_EQ(p.logit_bias, (std::vector<LogitBias>{{7, -100}, {11, 2.5}}));
  EXPECT_EQ(p.min_tokens, 3);
  EXPECT_TRUE(p.ignore_eos);
  EXPECT_TRUE(p.include_stop_str_in_output);
  EXPECT_FALSE(p.skip_special_tokens);
  EXPECT_EQ(p.num_logprobs, 0);
  EXPECT_EQ(p.prompt_logprobs, 5);
  EXPECT_EQ(p.response_format.kind, ResponseFormat::Kind::kJsonObject);
}

TEST(SamplingJsonTest, ResponseFormatsKeepTheirText) {
  using Kind = ResponseFormat::Kind;
  const auto format = [](const char* text) { return response_format_from_json(Json::parse(text)); };
  EXPECT_EQ(format(R"({"type":"text"})"), ResponseFormat{});
  EXPECT_EQ(format(R"({"type":"json_schema","json_schema":{"name":"n","schema":{"b":1,"a":2}}})"),
            (ResponseFormat{Kind::kJsonSchema, R"({"b":1,"a":2})"}));
  EXPECT_EQ(format(R"({"type":"regex","pattern":"[0-9]+"})"),
            (ResponseFormat{Kind::kRegex, "[0-9]+"}));
  EXPECT_EQ(format(R"({"type":"grammar","grammar":"root ::= \"a\""})"),
            (ResponseFormat{Kind::kGrammar, "root ::= \"a\""}));
  EXPECT_EQ(format(R"({"type":"choice","choices":["yes","no"]})"),
            (ResponseFormat{Kind::kChoice, R"(["yes","no"])"}));
  EXPECT_EQ(format(R"({"type":"structural_tag","structures":[]})"),
            (ResponseFormat{Kind::kStructuralTag, R"({"type":"structural_tag","structures":[]})"}));
  EXPECT_EQ(error_of(R"({"response_format":{"type":"xml"}})"),
            "\"response_format\" has the type \"xml\"; known are text, json_object, json_schema, "
            "regex, grammar, choice, structural_tag");
  EXPECT_EQ(error_of(R"({"response_format":{"type":"json_schema","json_schema":{}}})"),
            "\"response_format\" of type \"json_schema\" needs \"schema\"");
  EXPECT_EQ(error_of(R"({"response_format":{"type":"regex","pattern":3}})"),
            "\"response_format.pattern\" must be a string, not 3");
}

TEST(SamplingJsonTest, ABiasOfSomethingElseThanATokenIsNamed) {
  EXPECT_EQ(error_of(R"({"logit_bias":{"the":1}})"),
            "\"logit_bias\" has \"the\" where a token id is expected");
  EXPECT_EQ(error_of(R"({"logit_bias":{"7":"1"}})"), "\"logit_bias\" must be a number, not \"1\"");
  EXPECT_EQ(error_of(R"({"logit_bias":[7]})"),
            "\"logit_bias\" must be an object of token ids and numbers, not [7]");
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
