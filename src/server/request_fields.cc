#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/http_message.h"
#include "server/json.h"

namespace minisgl {
namespace {

constexpr std::int64_t kMaxStops = 16;

// Fields that clients know and whose function is not there: a value that asks for it is refused,
// since an answer without it would look like one with it.
struct Unsupported {
  const char* field;
  bool (*asks)(const Json& value);  // called for values other than null
};

bool any_value(const Json& /*value*/) { return true; }
bool is_true(const Json& v) { return !v.is_boolean() || v.get<bool>(); }
bool is_not_zero(const Json& v) { return !v.is_number() || v.get<double>() != 0.0; }
bool is_not_one(const Json& v) { return !v.is_number() || v.get<double>() != 1.0; }
bool is_not_empty(const Json& v) { return v.is_string() ? v != "" : !v.empty(); }
bool is_other_than_text(const Json& v) {
  return !v.is_object() || !v.contains("type") || v["type"] != "text";
}
bool is_other_than_text_list(const Json& v) { return v != Json::array({"text"}); }
bool is_forced_tool(const Json& v) { return v != "auto" && v != "none"; }

constexpr Unsupported kUnsupported[] = {
    {"logprobs", [](const Json& v) { return v != false; }},
    {"top_logprobs", any_value},
    {"logit_bias", is_not_empty},
    {"presence_penalty", is_not_zero},
    {"frequency_penalty", is_not_zero},
    {"repetition_penalty", is_not_one},
    {"response_format", is_other_than_text},
    {"tool_choice", is_forced_tool},
    {"functions", is_not_empty},
    {"function_call", is_forced_tool},
    {"modalities", is_other_than_text_list},
    {"audio", any_value},
    {"echo", is_true},
    {"best_of", is_not_one},
    {"suffix", is_not_empty},
    {"min_tokens", is_not_zero},
    {"continue_final_message", is_true},
    // Constrained output, as other engines call it.
    {"guided_json", any_value},
    {"guided_regex", any_value},
    {"guided_grammar", any_value},
    {"guided_choice", any_value},
    {"structured_outputs", any_value},
    {"json_schema", any_value},
    {"regex", any_value},
    {"ebnf", any_value},
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

}  // namespace

void refuse_unsupported(const Fields& fields) {
  for (const Unsupported& row : kUnsupported) {
    const Json* value = fields.find(row.field);
    if (value != nullptr && row.asks(*value))
      throw RequestError(
          fmt::format("{} = {} is not supported; leave it out", row.field, describe(*value)),
          row.field, "unsupported_parameter");
  }
}

void check_model(const Fields& fields, const RequestRules& rules) {
  const std::string model = fields.string("model").value_or(rules.served_name);
  if (model != rules.served_name && !rules.accept_any_model)
    throw StatusError(404,
                      fmt::format("the model \"{}\" is not served here; this server has \"{}\"",
                                  model, rules.served_name),
                      "model", "model_not_found");
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
  s.ignore_eos = fields.boolean("ignore_eos", false);
  s.stop = read_stop(fields);
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
  if (request.num_choices() <= static_cast<std::size_t>(kMaxChoices)) return;
  throw RequestError(
      fmt::format("{} prompts with n = {} are {} answers; one request may ask for {}",
                  request.prompts.size(), request.n, request.num_choices(), kMaxChoices),
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
