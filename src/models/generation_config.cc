#include "models/generation_config.h"

#include <cmath>
#include <limits>

#include "base/log.h"
#include "minisgl/error.h"

namespace minisgl::models {
namespace {

using nlohmann::json;

const json* find(const json& root, const char* key) {
  const auto found = root.find(key);
  return found == root.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void fail(const std::string& where, const char* key, const json& value,
                       const std::string& expected) {
  throw Error(where + ": " + key + " is " + value.dump().substr(0, 60) + ", expected " + expected);
}

std::optional<double> number(const json& root, const std::string& where, const char* key,
                             int highest) {
  const json* value = find(root, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= highest))
    fail(where, key, *value, "a number from 0 to " + std::to_string(highest));
  return value->get<double>();
}

}  // namespace

SamplingDefaults read_sampling_defaults(const json& root, const std::string& where) {
  SamplingDefaults defaults{.temperature = number(root, where, "temperature", 2),
                            .top_p = number(root, where, "top_p", 1),
                            .min_p = number(root, where, "min_p", 1)};
  if (const json* top_k = find(root, "top_k")) {
    if (!top_k->is_number_integer()) fail(where, "top_k", *top_k, "a whole number");
    defaults.top_k = top_k->get<std::int64_t>();
  }
  if (const json* penalty = find(root, "repetition_penalty"); penalty != nullptr && *penalty != 1)
    log::warning("{}: repetition_penalty {} is not supported and has no effect", where,
                 penalty->dump());
  return defaults;
}

}  // namespace minisgl::models
