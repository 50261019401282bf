#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "server/http_message.h"
#include "server/json.h"

namespace minisgl {
namespace {

constexpr std::int64_t kMaxStops = 16;
constexpr double kMaxBias = 100;

// Fields that clients know and whose function is not there: a value that asks for it is refused,
// since an answer without it would look like one with it.
struct Unsupported {
  const char* field;
  bool (*asks)(const Json& value);  // called for values other than null
};

bool any_value(const Json& /*value*/) { return true; }
bool is_true(const Json& v) { return !v.is_boolean() || v.get<bool>(); }
bool is_not_empty(const Json& v) { return v.is_string() ? v != "" : !v.empty(); }
bool is_other_than_text_list(const Json& v) { return v != Json::array({"text"}); }
bool is_forced_function(const Json& v) { return v != "auto" && v != "none"; }

constexpr Unsupported kUnsupported[] = {
    {"functions", is_not_empty},  // tools have taken their place
    {"function_call", is_forced_function},
    {"modalities", is_other_than_text_list},
    {"audio", any_value},
    {"web_search_options", any_value},
    {"suffix", is_not_empty},
    // Of other engines.
    {"use_beam_search", is_true},
    {"allowed_token_ids", is_not_empty},
    {"bad_words", is_not_empty},
    {"truncate_prompt_tokens", any_value},
    {"prompt_logprobs", any_value},
    {"structural_tag", any_value},
    {"lora_path", any_value},
};

std::vector<std::string> read_stop(const Fields& fields) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return {};
  std::vector<std::string> stop;
  const auto add = [&](const Json& text) {
    if (!text.is_string() || text == "")
      throw RequestError(
          fmt::format("stop must be a string or an array of strings that are not empty, not {}",
                      describe(text)),
          "stop");
    stop.push_back(text.get<std::string>());
  };
  if (value->is_array())
    for (const Json& text : *value) add(text);
  else
    add(*value);
  if (stop.size() > static_cast<std::size_t>(kMaxStops))
    throw RequestError(
        fmt::format("stop has {} strings, at most {} are allowed", stop.size(), kMaxStops), "stop");
  return stop;
}

// {"50256": -100}
std::vector<LogitBias> read_logit_bias(const Fields& fields, int vocab_size) {
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return {};
  std::vector<LogitBias> biases;
  for (const auto& [key, value] : object->items()) {
    std::int32_t token = -1;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, token);
    if (parsed.ec != std::errc() || parsed.ptr != end || token < 0 || token >= vocab_size)
      throw RequestError(
          fmt::format("logit_bias has the key {} where the model's token ids are integers from 0 "
                      "to {}",
                      describe(key), vocab_size - 1),
          "logit_bias");
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kMaxBias))
      throw RequestError(fmt::format("logit_bias must be numbers from {} to {}, not {}", -kMaxBias,
                                     kMaxBias, describe(value)),
                         "logit_bias");
    biases.push_back({.token = token, .bias = value.get<double>()});
  }
  return biases;
}

void read_penalties(const Fields& fields, SamplingParams& s) {
  s.presence_penalty = fields.number("presence_penalty", s.presence_penalty, -2.0, 2.0);
  s.frequency_penalty = fields.number("frequency_penalty", s.frequency_penalty, -2.0, 2.0);
  s.repetition_penalty = fields.number("repetition_penalty", s.repetition_penalty, 0.0, 100.0);
  if (s.repetition_penalty == 0.0)
    throw RequestError("repetition_penalty must be greater than 0", "repetition_penalty");
}

}  // namespace

void refuse_field(const Fields& fields, const char* field) {
  if (const Json* value = fields.find(field); value != nullptr && *value != false)
    throw RequestError(
        fmt::format("{} = {} is not supported here; leave it out", field, describe(*value)), field,
        "unsupported_parameter");
}

void refuse_unsupported(const Fields& fields) {
  for (const Unsupported& row : kUnsupported) {
    const Json* value = fields.find(row.field);
    if (value != nullptr && row.asks(*value)) refuse_field(fields, row.field);
  }
}

void check_model(const Fields& fields, const RequestRules& rules) {
  const std::string model = fields.string("model").value_or(rules.served_name);
  if (!rules.serves(model) && !rules.accept_any_model) rules.refuse(model);
}

std::vector<TokenId> read_ids(const Json& ids, const std::string& name, int vocab_size) {
  std::vector<TokenId> result;
  result.reserve(ids.size());
  for (const Json& id : ids) {
    const std::optional<std::int64_t> n = as_integer(id);
    if (!n || *n < 0 || *n >= vocab_size)
      throw RequestError(
          fmt::format("{} has {} where the model's token ids are integers from 0 to {}", name,
                      describe(id), vocab_size - 1),
          name);
    result.push_back(static_cast<TokenId>(*n));
  }
  return result;
}

SamplingParams openai_sampling(const Generator& generator) {
  return generator.sampling_defaults().over({.temperature = 1.0});
}

SamplingParams read_sampling(const Fields& fields, const Generator& generator,
                             SamplingParams params) {
  SamplingParams s = std::move(params);
  s.temperature = fields.number("temperature", s.temperature, 0.0, 2.0);
  s.top_p = fields.number("top_p", s.top_p, 0.0, 1.0);
  s.min_p = fields.number("min_p", s.min_p, 0.0, 1.0);
  s.top_k = fields.integer("top_k").value_or(s.top_k);
  if (const auto seed = fields.integer("seed")) s.seed = static_cast<std::uint64_t>(*seed);
  read_penalties(fields, s);
  s.logit_bias = read_logit_bias(fields, generator.vocab_size());
  s.min_tokens = fields.integer("min_tokens", 0).value_or(0);
  s.ignore_eos = fields.boolean("ignore_eos", false);
  s.stop = read_stop(fields);
  s.include_stop_str_in_output =
      fields.boolean("include_stop_str_in_output", fields.boolean("no_stop_trim", false));
  s.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  if (const Json* ids = fields.array("stop_token_ids"))
    s.stop_token_ids = read_ids(*ids, "stop_token_ids", generator.vocab_size());
  return s;
}

void read_stream(const Fields& fields, bool stream_by_default, ApiRequest& request) {
  request.stream = fields.boolean("stream", stream_by_default);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!request.stream)
    throw RequestError("stream_options is allowed only together with \"stream\": true",
                       "stream_options");
  request.include_usage = Fields(*options).boolean("include_usage", false);
}

void read_num_choices(const Fields& fields, ApiRequest& request) {
  request.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  request.best_of = static_cast<int>(fields.integer("best_of", 1, kMaxChoices).value_or(request.n));
  if (request.best_of < request.n)
    throw RequestError(
        fmt::format("best_of must be at least n, which is {}, not {}", request.n, request.best_of),
        "best_of");
  if (request.best_of > request.n && request.stream)
    throw RequestError("best_of cannot be greater than n in a stream: the best is known at the end",
                       "best_of");
  if (request.num_answers() <= static_cast<std::size_t>(kMaxChoices)) return;
  throw RequestError(
      fmt::format("{} prompts with {} = {} are {} answers; one request may ask for "
                  "{}",
                  request.prompts.size(), request.best_of > request.n ? "best_of" : "n",
                  request.best_of, request.num_answers(), kMaxChoices),
      request.prompts.size() > 1 ? "prompt" : "n");
}

void read_prompts(const Fields& fields, const Generator& generator, ApiRequest& request) {
  request.param = "prompt";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) throw RequestError("prompt is missing", "prompt");
  const auto refuse = [](const std::string& found) {
    throw RequestError(
        "prompt must be a string, an array of strings, an array of token ids or an array of arrays "
        "of token ids, and not empty; found " +
            found,
        "prompt");
  };
  const auto add_ids = [&](const Json& ids) {
    if (ids.empty()) refuse("an array without token ids");
    request.prompts.emplace_back(read_ids(ids, "prompt", generator.vocab_size()));
  };
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty())
    refuse(prompt->is_array() ? "an empty array" : describe(*prompt));
  const auto all = [&](auto is) { return std::all_of(prompt->begin(), prompt->end(), is); };
  if (all([](const Json& p) { return p.is_string(); }))
    for (const Json& text : *prompt) request.prompts.emplace_back(text.get<std::string>());
  else if (all([](const Json& p) { return p.is_array(); }))
    for (const Json& ids : *prompt) add_ids(ids);
  else
    add_ids(*prompt);
}

}  // namespace minisgl
