// best_of, echo and log-probabilities of /v1/completions, from body to reply.

#include "server/openai/completion.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "server/api_fixture_for_test.h"

namespace minisgl::openai {
namespace {

using testing_util::update;

class CompletionTest : public testing_util::ApiFixture {
 protected:
  ApiRequest request(const std::string& more) const {
    return open(open_completion, R"({"prompt":"hi")" + more + "}").request;
  }
  std::string error(const std::string& more) const {
    return error_of(open_completion, R"({"prompt":"hi")" + more + "}");
  }
};

GenerateUpdate with_logprob(GenerateUpdate u, const std::string& bytes, double logprob) {
  TextLogprobs& position = u.logprobs.emplace_back();
  position.chosen = {.token = 1, .bytes = bytes, .logprob = logprob};
  position.top.push_back({.token = 2, .bytes = "z", .logprob = -0.25});
  return u;
}

TEST_F(CompletionTest, TheLikeliestByTokenAreChosen) {
  const std::string body = R"({"prompt":["a","b"],"n":1,"best_of":3,"seed":5})";
  const ApiRequest r = open(open_completion, body).request;
  EXPECT_EQ(r.num_choices(), 2U);
  ASSERT_EQ(r.num_answers(), 6U);
  EXPECT_EQ(r.generate_request(4).sampling.seed, 6U);
  EXPECT_EQ(std::get<std::string>(r.generate_request(4).prompt), "b");
  EXPECT_EQ(r.generate_request(0).sampling.num_logprobs, 0) << "to know the likeliest";
  Answer answer = this->answer(open_completion, body);
  const auto end = [&](std::size_t index, const char* text, int tokens, double logprob) {
    GenerateUpdate u = update(text, tokens, FinishReason::kStop);
    u.cumulative_logprob = logprob;
    answer.add(index, u);
  };
  answer.add(0, update("fi", 1));
  end(0, "rst", 2, -4);
  end(1, "second", 4, -6);  // -1.5 for each token
  end(2, "third", 1, -3);
  for (const std::size_t i : {3U, 4U, 5U}) end(i, "equal", 1, -1);
  const Json whole = Json::parse(answer.whole().body);
  ASSERT_EQ(whole["choices"].size(), 2U);
  EXPECT_EQ(whole["choices"][0]["text"], "second");
  EXPECT_EQ(whole["choices"][1]["text"], "equal");
  EXPECT_EQ(whole["choices"][0]["logprobs"], nullptr) << "nobody asked for them";
  EXPECT_EQ(whole["usage"]["completion_tokens"], 2 + 4 + 1 + 3) << "all that was generated";
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 14);
}

TEST_F(CompletionTest, BestOfIsAtLeastNAndNotForStreams) {
  EXPECT_EQ(error(R"(,"n":3,"best_of":2)"),
            "400 best_of: best_of must be at least n, which is 3, not 2");
  EXPECT_EQ(error(R"(,"best_of":2,"stream":true)"),
            "400 best_of: best_of cannot be greater than n in a stream: the best is known at the "
            "end");
  EXPECT_EQ(error(R"(,"n":2,"best_of":2,"stream":true)"), "no error");
}

TEST_F(CompletionTest, AnEchoBeginsWithThePrompt) {
  Answer answer = this->answer(open_completion, R"({"prompt":[[97,98],[99,100]],"echo":true})");
  answer.add(0, update("x", 1, FinishReason::kStop));
  answer.add(1, update("", 0, FinishReason::kLength));
  const Json choices = Json::parse(answer.whole().body)["choices"];
  EXPECT_EQ(choices[0]["text"], "abx");
  EXPECT_EQ(choices[1]["text"], "cd");
  Answer stream = this->answer(open_completion, R"({"prompt":"ab","echo":true,"stream":true})");
  EXPECT_NE(stream.add(0, update("", 1)).find(R"("text":"ab")"), std::string::npos)
      << "it does not wait for the answer";
  EXPECT_NE(stream.add(0, update("x", 2)).find(R"("text":"x")"), std::string::npos);
}

TEST_F(CompletionTest, LogProbabilitiesAreInTheOldForm) {
  EXPECT_EQ(request("").sampling.num_logprobs, std::nullopt);
  EXPECT_EQ(request(R"(,"logprobs":0)").sampling.num_logprobs, 0);
  EXPECT_EQ(error(R"(,"logprobs":21)"),
            "400 logprobs: logprobs must be an integer from 0 to 20, not 21");
  EXPECT_EQ(error(R"(,"top_logprobs":2)"),
            "400 top_logprobs: top_logprobs = 2 is not supported here; leave it out");
  Answer answer = this->answer(open_completion, R"({"prompt":"hi","logprobs":1})");
  answer.add(0, with_logprob(update("", 1), "\xe2\x82", -0.5));
  answer.add(
      0, with_logprob(update("\xe2\x82\xac", 2), "\xac", -std::numeric_limits<double>::infinity()));
  answer.add(0, with_logprob(update("ab", 3, FinishReason::kLength), "ab", -0.125));
  EXPECT_EQ(Json::parse(answer.whole().body)["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["bytes:\\xe2\\x82","bytes:\\xac","ab"],
                "token_logprobs":[-0.5,-9999.0,-0.125],
                "top_logprobs":[{"z":-0.25,"bytes:\\xe2\\x82":-0.5},
                                {"z":-0.25,"bytes:\\xac":-9999.0},{"z":-0.25,"ab":-0.125}],
                "text_offset":[0,1,1]})"));
}

TEST_F(CompletionTest, AnEchoHasTheLogProbabilitiesOfThePromptToo) {
  const std::string body = R"({"prompt":"a","echo":true,"logprobs":1,"max_tokens":1})";
  EXPECT_EQ(open(open_completion, body).request.sampling.prompt_logprobs, 1);
  Answer answer = this->answer(open_completion, body);
  GenerateUpdate u = with_logprob(update("x", 1, FinishReason::kLength), "x", -0.5);
  u.prompt_logprobs.resize(2);
  TextLogprobs& of_a = u.prompt_logprobs[1].emplace();
  of_a.chosen = {.token = 97, .bytes = "a", .logprob = -2};
  of_a.top.push_back({.token = 98, .bytes = "b", .logprob = -1});
  answer.add(0, u);
  EXPECT_EQ(Json::parse(answer.whole().body)["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["<s>","a","x"],"token_logprobs":[null,-2.0,-0.5],
                "top_logprobs":[null,{"b":-1.0,"a":-2.0},{"z":-0.25,"x":-0.5}],
                "text_offset":[0,3,4]})"));
}

}  // namespace
}  // namespace minisgl::openai
