#include "llm/sampling_json.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& key, const std::string& expected, const Json& found) {
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

int small_integer(const std::string& key, const Json& value) {
  const std::int64_t number = integer(key, value);
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (number < -kMost || number > kMost) fail(key, "an integer of 32 bits", value);
  return static_cast<int>(number);
}

bool boolean(const std::string& key, const Json& value) {
  if (!value.is_boolean()) fail(key, "true or false", value);
  return value.get<bool>();
}

std::vector<std::string> texts(const std::string& key, const Json& value) {
  std::vector<std::string> result;
  for (const Json& text : value.is_array() ? value : Json::array({value})) {
    if (!text.is_string()) fail(key, "a string or a list of strings", value);
    result.push_back(text.get<std::string>());
  }
  return result;
}

std::vector<std::int32_t> ids(const std::string& key, const Json& value) {
  if (!value.is_array()) fail(key, "a list of token ids", value);
  std::vector<std::int32_t> result;
  for (const Json& id : value) result.push_back(small_integer(key, id));
  return result;
}

struct Field {
  const char* name;
  void (*read)(const std::string& key, const Json& value, SamplingParams& params);
};

constexpr Field kFields[] = {
    {"temperature", [](auto& k, auto& v, auto& p) { p.temperature = number(k, v); }},
    {"top_k", [](auto& k, auto& v, auto& p) { p.top_k = integer(k, v); }},
    {"top_p", [](auto& k, auto& v, auto& p) { p.top_p = number(k, v); }},
    {"min_p", [](auto& k, auto& v, auto& p) { p.min_p = number(k, v); }},
    {"presence_penalty", [](auto& k, auto& v, auto& p) { p.presence_penalty = number(k, v); }},
    {"frequency_penalty", [](auto& k, auto& v, auto& p) { p.frequency_penalty = number(k, v); }},
    {"repetition_penalty", [](auto& k, auto& v, auto& p) { p.repetition_penalty = number(k, v); }},
    {"logit_bias", [](auto& /*k*/, auto& v, auto& p) { p.logit_bias = logit_bias_from_json(v); }},
    {"seed", [](auto& k, auto& v, auto& p) { p.seed = static_cast<std::uint64_t>(integer(k, v)); }},
    {"max_tokens", [](auto& k, auto& v, auto& p) { p.max_tokens = integer(k, v); }},
    {"min_tokens", [](auto& k, auto& v, auto& p) { p.min_tokens = integer(k, v); }},
    {"ignore_eos", [](auto& k, auto& v, auto& p) { p.ignore_eos = boolean(k, v); }},
    {"stop", [](auto& k, auto& v, auto& p) { p.stop = texts(k, v); }},
    {"stop_token_ids", [](auto& k, auto& v, auto& p) { p.stop_token_ids = ids(k, v); }},
    {"include_stop_str_in_output",
     [](auto& k, auto& v, auto& p) { p.include_stop_str_in_output = boolean(k, v); }},
    {"skip_special_tokens",
     [](auto& k, auto& v, auto& p) { p.skip_special_tokens = boolean(k, v); }},
    {"num_logprobs", [](auto& k, auto& v, auto& p) { p.num_logprobs = small_integer(k, v); }},
    {"prompt_logprobs", [](auto& k, auto& v, auto& p) { p.prompt_logprobs = small_integer(k, v); }},
    {"response_format",
     [](auto& /*k*/, auto& v, auto& p) { p.response_format = response_format_from_json(v); }},
};

}  // namespace

std::vector<LogitBias> logit_bias_from_json(const Json& json) {
  const std::string key = "logit_bias";
  if (!json.is_object()) fail(key, "an object of token ids and numbers", json);
  std::vector<LogitBias> result;
  for (const auto& [name, bias] : json.items()) {
    LogitBias entry;
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, entry.token);
    if (read.ec != std::errc() || read.ptr != end)
      throw RequestError("\"logit_bias\" has \"" + name + "\" where a token id is expected", key);
    entry.bias = number(key, bias);
    result.push_back(entry);
  }
  return result;
}

ResponseFormat response_format_from_json(const Json& json) {
  using Kind = ResponseFormat::Kind;
  const std::string key = "response_format";
  if (!json.is_object()) fail(key, "an object", json);
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) fail(key, "an object with a \"type\"", json);
  const auto member = [&](const Json& object, const char* name) -> const Json& {
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (!object.is_object() || found == object.end())
      throw RequestError("\"response_format\" of type " + type->dump() + " needs \"" + name + "\"",
                         key);
    return *found;
  };
  const auto text = [&](const char* name) {
    const Json& value = member(json, name);
    if (!value.is_string()) fail(key + "." + name, "a string", value);
    return value.get<std::string>();
  };
  if (*type == "text") return {};
  if (*type == "json_object") return {.kind = Kind::kJsonObject};
  if (*type == "json_schema") {
    const Json& schema = member(member(json, "json_schema"), "schema");
    return {.kind = Kind::kJsonSchema, .text = schema.dump()};
  }
  if (*type == "regex") return {.kind = Kind::kRegex, .text = text("pattern")};
  if (*type == "grammar") return {.kind = Kind::kGrammar, .text = text("grammar")};
  if (*type == "choice") {
    const Json& choices = member(json, "choices");
    if (!choices.is_array()) fail(key + ".choices", "a list of strings", choices);
    return {.kind = Kind::kChoice, .text = Json(texts(key + ".choices", choices)).dump()};
  }
  if (*type == "structural_tag") return {.kind = Kind::kStructuralTag, .text = json.dump()};
  throw RequestError("\"response_format\" has the type " + type->dump() +
                         "; known are text, json_object, json_schema, regex, grammar, choice, "
                         "structural_tag",
                     key);
}

SamplingParams sampling_from_json(const Json& json, SamplingParams params) {
  if (!json.is_object())
    throw RequestError("\"sampling\" must be an object, not " + json.dump(), "sampling");
  for (const auto& [key, value] : json.items()) {
    if (value.is_null()) continue;
    const auto* const field = std::find_if(std::begin(kFields), std::end(kFields),
                                           [&](const Field& f) { return key == f.name; });
    if (field == std::end(kFields)) {
      std::string known;
      for (const Field& f : kFields) known += (known.empty() ? "" : ", ") + std::string(f.name);
      throw RequestError("\"" + key + "\" is not a sampling parameter; known are " + known, key);
    }
    field->read(key, value, params);
  }
  return params;
}

}  // namespace minisgl
