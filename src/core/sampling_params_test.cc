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
