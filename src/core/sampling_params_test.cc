#include "minisgl/sampling_params.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "minisgl/error.h"

namespace minisgl {
namespace {

struct Refusal {
  std::string message, param;
};

Refusal refusal(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  try {
    validate(params);
  } catch (const RequestError& e) {
    return {e.what(), e.param()};
  }
  return {"no error", ""};
}

TEST(SamplingParamsTest, TheDefaultsAndTheEndsOfEveryRangeAreGood) {
  validate(SamplingParams{});
  validate({.temperature = 2, .top_k = 0, .top_p = 0, .min_p = 1, .max_tokens = 0});
  validate({.temperature = 0,
            .top_k = 1,
            .top_p = 1,
            .min_p = 0,
            .stop = std::vector<std::string>(16, "x")});
}

TEST(SamplingParamsTest, ARefusalNamesFieldValueAndRange) {
  const Refusal hot = refusal([](auto& p) { p.temperature = 2.5; });
  EXPECT_EQ(hot.message, "temperature is 2.5; it must be between 0 and 2");
  EXPECT_EQ(hot.param, "temperature");
  EXPECT_EQ(refusal([](auto& p) { p.temperature = -1; }).param, "temperature");
  EXPECT_EQ(refusal([](auto& p) { p.top_p = 1.5; }).message,
            "top_p is 1.5; it must be between 0 and 1");
  EXPECT_EQ(refusal([](auto& p) { p.min_p = -0.5; }).message,
            "min_p is -0.5; it must be between 0 and 1");
  EXPECT_EQ(refusal([](auto& p) { p.max_tokens = -1; }).message,
            "max_tokens is -1; it must be at least 0");
}

TEST(SamplingParamsTest, PenaltiesHaveTheRangesOfTheOpenAiApi) {
  validate({.presence_penalty = -2, .frequency_penalty = 2, .repetition_penalty = 0.01});
  EXPECT_EQ(refusal([](auto& p) { p.presence_penalty = 2.5; }).message,
            "presence_penalty is 2.5; it must be between -2 and 2");
  const Refusal frequency = refusal([](auto& p) { p.frequency_penalty = -3; });
  EXPECT_EQ(frequency.message, "frequency_penalty is -3; it must be between -2 and 2");
  EXPECT_EQ(frequency.param, "frequency_penalty");
  const Refusal repetition = refusal([](auto& p) { p.repetition_penalty = 0; });
  EXPECT_EQ(repetition.message,
            "repetition_penalty is 0; it must be greater than 0 and at most 100");
  EXPECT_EQ(repetition.param, "repetition_penalty");
  EXPECT_EQ(refusal([](auto& p) {
              p.repetition_penalty = std::numeric_limits<double>::infinity();
            }).param,
            "repetition_penalty");
}

TEST(SamplingParamsTest, ABiasIsSmallAndOfATokenOnce) {
  validate({.logit_bias = {{.token = 7, .bias = -100}, {.token = 8, .bias = 100}}});
  EXPECT_EQ(refusal([](auto& p) { p.logit_bias = {{7, 101}}; }).message,
            "logit_bias of token 7 is 101; it must be between -100 and 100");
  const Refusal twice = refusal([](auto& p) { p.logit_bias = {{7, 1}, {8, 1}, {7, 2}}; });
  EXPECT_EQ(twice.message, "logit_bias names token 7 twice; each token may be named once");
  EXPECT_EQ(twice.param, "logit_bias");
  EXPECT_EQ(refusal([](auto& p) {
              p.logit_bias = {{7, std::numeric_limits<double>::quiet_NaN()}};
            }).param,
            "logit_bias");
}

TEST(SamplingParamsTest, AnAnswerIsNotLongerThanItMayBe) {
  validate({.max_tokens = 5, .min_tokens = 5});
  const Refusal longer = refusal([](auto& p) {
    p.max_tokens = 5;
    p.min_tokens = 6;
  });
  EXPECT_EQ(longer.message, "min_tokens is 6; it must be between 0 and max_tokens, 5");
  EXPECT_EQ(longer.param, "min_tokens");
  EXPECT_EQ(refusal([](auto& p) { p.min_tokens = -1; }).param, "min_tokens");
}

TEST(SamplingParamsTest, LogProbabilitiesListAtMostFifty) {
  validate({.num_logprobs = 0, .prompt_logprobs = 50});
  EXPECT_EQ(refusal([](auto& p) { p.num_logprobs = 51; }).message,
            "num_logprobs is 51; it must be between 0 and 50");
  EXPECT_EQ(refusal([](auto& p) { p.prompt_logprobs = -1; }).message,
            "prompt_logprobs is -1; it must be between 0 and 50");
}

TEST(SamplingParamsTest, NumbersThatAreNoneAreRefused) {
  EXPECT_EQ(
      refusal([](auto& p) { p.temperature = std::numeric_limits<double>::quiet_NaN(); }).message,
      "temperature is nan; it must be between 0 and 2");
  EXPECT_EQ(refusal([](auto& p) { p.top_p = std::numeric_limits<double>::infinity(); }).message,
            "top_p is inf; it must be between 0 and 1");
}

TEST(SamplingParamsTest, StopTextsAreFewAndNotEmpty) {
  EXPECT_EQ(refusal([](auto& p) { p.stop = {"a", ""}; }).message,
            "stop[1] is empty; a stop text needs at least one character");
  const Refusal many = refusal([](auto& p) { p.stop.assign(17, "x"); });
  EXPECT_EQ(many.message, "stop has 17 texts; it may have at most 16");
  EXPECT_EQ(many.param, "stop");
}

TEST(SamplingParamsTest, GreedyIsNoTemperatureOrOneCandidate) {
  EXPECT_TRUE(SamplingParams{}.is_greedy());
  EXPECT_TRUE((SamplingParams{.temperature = 1, .top_k = 1}).is_greedy());
  EXPECT_FALSE((SamplingParams{.temperature = 1}).is_greedy());
}

}  // namespace
}  // namespace minisgl
