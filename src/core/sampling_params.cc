#include "minisgl/sampling_params.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr std::size_t kMaxStopTexts = 16;
constexpr double kMaxBias = 100;
constexpr double kMaxRepetitionPenalty = 100;

void check_range(const char* field, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return;
  throw RequestError(fmt::format("{} is {}; it must be between {} and {}", field, value, low, high),
                     field);
}

void check_stops(const SamplingParams& params) {
  if (params.stop.size() > kMaxStopTexts) {
    throw RequestError(
        fmt::format("stop has {} texts; it may have at most {}", params.stop.size(), kMaxStopTexts),
        "stop");
  }
  for (std::size_t i = 0; i < params.stop.size(); ++i) {
    if (!params.stop[i].empty()) continue;
    throw RequestError(
        fmt::format("stop[{}] is empty; a stop text needs at least one character", i), "stop");
  }
}

void check_penalties(const SamplingParams& params) {
  check_range("presence_penalty", params.presence_penalty, -2, 2);
  check_range("frequency_penalty", params.frequency_penalty, -2, 2);
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= kMaxRepetitionPenalty)) {
    throw RequestError(
        fmt::format("repetition_penalty is {}; it must be greater than 0 and at most {}",
                    params.repetition_penalty, kMaxRepetitionPenalty),
        "repetition_penalty");
  }
}

void check_bias(const SamplingParams& params) {
  std::set<std::int32_t> tokens;
  for (const LogitBias& bias : params.logit_bias) {
    if (!(bias.bias >= -kMaxBias && bias.bias <= kMaxBias)) {
      throw RequestError(fmt::format("logit_bias of token {} is {}; it must be between {} and {}",
                                     bias.token, bias.bias, -kMaxBias, kMaxBias),
                         "logit_bias");
    }
    if (!tokens.insert(bias.token).second) {
      throw RequestError(
          fmt::format("logit_bias names token {} twice; each token may be named once", bias.token),
          "logit_bias");
    }
  }
}

void check_lengths(const SamplingParams& params) {
  if (params.max_tokens < 0) {
    throw RequestError(fmt::format("max_tokens is {}; it must be at least 0", params.max_tokens),
                       "max_tokens");
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    throw RequestError(fmt::format("min_tokens is {}; it must be between 0 and max_tokens, {}",
                                   params.min_tokens, params.max_tokens),
                       "min_tokens");
  }
}

void check_logprobs(const char* field, std::optional<int> count) {
  if (count) check_range(field, *count, 0, kMaxLogprobs);
}

}  // namespace

SamplingParams SamplingDefaults::over(SamplingParams params) const {
  params.temperature = temperature.value_or(params.temperature);
  params.top_k = top_k.value_or(params.top_k);
  params.top_p = top_p.value_or(params.top_p);
  params.min_p = min_p.value_or(params.min_p);
  return params;
}

void validate(const SamplingParams& params) {
  check_range("temperature", params.temperature, 0, 2);
  check_range("top_p", params.top_p, 0, 1);
  check_range("min_p", params.min_p, 0, 1);
  check_penalties(params);
  check_bias(params);
  check_lengths(params);
  check_stops(params);
  check_logprobs("num_logprobs", params.num_logprobs);
  check_logprobs("prompt_logprobs", params.prompt_logprobs);
}

}  // namespace minisgl
