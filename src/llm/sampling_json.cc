#include "llm/sampling_json.h"

#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& key, const char* expected, const Json& found) {
  throw RequestError("\"" + key + "\" must be " + expected + ", not " + found.dump(), key);
}

double number(const std::string& key, const Json& value) {
  if (!value.is_number()) fail(key, "a number", value);
  return value.get<double>();
}

std::int64_t integer(const std::string& key, const Json& value) {
  if (!value.is_number_integer()) fail(key, "an integer", value);
  return value.get<std::int64_t>();
}

}  // namespace

SamplingParams sampling_from_json(const Json& json, SamplingParams params) {
  if (!json.is_object())
    throw RequestError("\"sampling\" must be an object, not " + json.dump(), "sampling");
  for (const auto& [key, value] : json.items()) {
    if (value.is_null()) continue;
    if (key == "temperature") {
      params.temperature = number(key, value);
    } else if (key == "top_p") {
      params.top_p = number(key, value);
    } else if (key == "min_p") {
      params.min_p = number(key, value);
    } else if (key == "top_k") {
      params.top_k = integer(key, value);
    } else if (key == "max_tokens") {
      params.max_tokens = integer(key, value);
    } else if (key == "seed") {
      params.seed = static_cast<std::uint64_t>(integer(key, value));
    } else if (key == "ignore_eos") {
      if (!value.is_boolean()) fail(key, "true or false", value);
      params.ignore_eos = value.get<bool>();
    } else if (key == "stop") {
      params.stop.clear();
      for (const Json& text : value.is_array() ? value : Json::array({value})) {
        if (!text.is_string()) fail(key, "a string or a list of strings", value);
        params.stop.push_back(text.get<std::string>());
      }
    } else if (key == "stop_token_ids") {
      if (!value.is_array()) fail(key, "a list of token ids", value);
      params.stop_token_ids.clear();
      for (const Json& id : value)
        params.stop_token_ids.push_back(static_cast<std::int32_t>(integer(key, id)));
    } else {
      throw RequestError(
          "\"" + key +
              "\" is not a sampling parameter; known are temperature, top_k, top_p, min_p, "
              "seed, max_tokens, ignore_eos, stop, stop_token_ids",
          key);
    }
  }
  return params;
}

}  // namespace minisgl
