#include "minisgl/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr std::size_t kMaxStopTexts = 16;

void check_range(const char* field, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return;
  throw RequestError(fmt::format("{} is {}; it must be between {} and {}", field, value, low, high),
                     field);
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
  if (params.max_tokens < 0) {
    throw RequestError(fmt::format("max_tokens is {}; it must be at least 0", params.max_tokens),
                       "max_tokens");
  }
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

}  // namespace minisgl
