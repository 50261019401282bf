// Both forms of /generate.

#include "server/generate/generate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/api_fixture_for_test.h"

namespace minisgl {
namespace {

using testing_util::update;

class GenerateTest : public testing_util::ApiFixture {
 protected:
  ApiRequest request(const std::string& body) const { return open(open_generate, body).request; }
};

TEST_F(GenerateTest, TheFieldsTellWhichFormItIs) {
  EXPECT_TRUE(request(R"({"prompt":"a"})").stream) << "mini-sglang's streams";
  EXPECT_FALSE(request(R"({"text":"a"})").stream);
  EXPECT_EQ(request(R"({"prompt":"a"})").sampling.max_tokens, 16);
  EXPECT_EQ(request(R"({"text":"a"})").sampling.max_tokens, 128);
}

TEST_F(GenerateTest, SglangsParametersArrive) {
  const ApiRequest r = request(R"({"text":"a","stream":true,"sampling_params":{"max_new_tokens":7,
      "min_new_tokens":2,"temperature":0.5,"stop":["x"],"no_stop_trim":true,"n":2,
      "sampling_seed":3,"regex":"a+","frequency_penalty":1},
      "return_logprob":true,"top_logprobs_num":2,"logprob_start_len":0,"rid":"r"})");
  EXPECT_TRUE(r.stream);
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.sampling.max_tokens, 7);
  EXPECT_EQ(r.sampling.min_tokens, 2);
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.seed, 3U);
  EXPECT_EQ(r.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(r.sampling.include_stop_str_in_output);
  EXPECT_EQ(r.sampling.response_format.kind, ResponseFormat::Kind::kRegex);
  EXPECT_EQ(r.sampling.num_logprobs, 2);
  EXPECT_EQ(r.sampling.prompt_logprobs, 2);
}

TEST_F(GenerateTest, PromptsAreTextOrTokenIdsOneOrSeveral) {
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(std::get<std::string>(request(R"({"text":["a","b"]})").prompts.at(1)), "b");
  EXPECT_EQ(std::get<Ids>(request(R"({"input_ids":[5,6]})").prompts.at(0)), (Ids{5, 6}));
  EXPECT_EQ(std::get<Ids>(request(R"({"input_ids":[[5],[6]]})").prompts.at(1)), (Ids{6}));
  EXPECT_EQ(error_of(open_generate, R"({"sampling_params":{}})"),
            "400 text: give one of text and input_ids");
  EXPECT_EQ(error_of(open_generate, R"({"text":5})"),
            "400 text: text must be a string or an array of strings, not 5");
  EXPECT_EQ(error_of(open_generate, R"({"input_ids":[]})"),
            "400 input_ids: input_ids must be an array of token ids or an array of such arrays, "
            "not an array");
  EXPECT_EQ(error_of(open_generate, R"({"text":"a","sampling_params":{"max_new_tokens":-1}})"),
            "400 max_new_tokens: max_new_tokens must be an integer of at least 0, not -1");
}

TEST_F(GenerateTest, SglangsReplyHasItsMetaInformation) {
  Answer answer = this->answer(open_generate, R"({"text":"a"})");
  GenerateUpdate first = update("x", 1);
  first.tokens = {5};
  GenerateUpdate last = update("y", 2, FinishReason::kStop);
  last.tokens = {6};
  last.stop_reason = std::string("END");
  answer.add(0, first);
  answer.add(0, last);
  EXPECT_EQ(Json::parse(answer.whole().body),
            Json::parse(R"({"text":"xy","output_ids":[5,6],"meta_info":{"id":"10",
                "finish_reason":{"type":"stop","matched":"END"},"prompt_tokens":7,
                "completion_tokens":2,"cached_tokens":3}})"));
  Answer several = this->answer(open_generate, R"({"text":["a"]})");
  several.add(0, update("x", 1, FinishReason::kLength));
  EXPECT_EQ(Json::parse(several.whole().body).at(0)["meta_info"]["finish_reason"],
            (Json{{"type", "length"}, {"length", 1}}));
}

TEST_F(GenerateTest, AnEventOfSglangsStreamHasTheWholeTextSoFar) {
  Answer answer = this->answer(open_generate, R"({"text":"a","stream":true})");
  EXPECT_TRUE(answer.add(0, update("x", 1)).starts_with(R"(data: {"text":"x",)"));
  const std::string last = answer.add(0, update("y", 2, FinishReason::kLength));
  EXPECT_TRUE(last.starts_with(R"(data: {"text":"xy",)"));
  EXPECT_TRUE(last.ends_with("data: [DONE]\n\n"));
}

TEST_F(GenerateTest, SglangsLogProbabilitiesArePairsOfValueAndToken) {
  Answer answer = this->answer(
      open_generate,
      R"({"text":"ab","return_logprob":true,"top_logprobs_num":1,"logprob_start_len":1})");
  GenerateUpdate u = update("x", 1, FinishReason::kLength);
  TextLogprobs& of_x = u.logprobs.emplace_back();
  of_x.chosen = {.token = 5, .bytes = "x", .logprob = -0.5};
  of_x.top.push_back({.token = 6, .bytes = "y", .logprob = -0.25});
  u.prompt_logprobs.resize(2);
  u.prompt_logprobs[1].emplace().chosen = {.token = 97, .bytes = "a", .logprob = -2};
  answer.add(0, u);
  const Json meta = Json::parse(answer.whole().body)["meta_info"];
  EXPECT_EQ(meta["output_token_logprobs"], Json::parse("[[-0.5,5,null]]"));
  EXPECT_EQ(meta["output_top_logprobs"], Json::parse("[[[-0.25,6,null]]]"));
  EXPECT_EQ(meta["input_token_logprobs"], Json::parse("[[-2.0,97,null]]"));
}

}  // namespace
}  // namespace minisgl
