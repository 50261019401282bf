#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/http_message.h"
#include "server/json.h"

namespace minisgl {
namespace {

constexpr std::int64_t kMaxChoices = 128;  // OpenAI's limit of n
constexpr std::int64_t kMaxStops = 16;
constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's, for completions only

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

void read_sampling(const Fields& fields, const Generator& generator, ApiRequest& request) {
  SamplingParams& s = request.sampling;
  const bool is_openai = request.endpoint != Endpoint::kGenerate;
  s.temperature = is_openai ? 1.0 : 0.0;
  if (is_openai) s = generator.sampling_defaults().over(std::move(s));
  s.temperature = fields.number("temperature", s.temperature, 0.0, 2.0);
  s.top_p = fields.number("top_p", s.top_p, 0.0, 1.0);
  s.min_p = fields.number("min_p", s.min_p, 0.0, 1.0);
  s.top_k = fields.integer("top_k").value_or(s.top_k);
  if (const auto seed = fields.integer("seed")) s.seed = static_cast<std::uint64_t>(*seed);
  s.ignore_eos = fields.boolean("ignore_eos", false);
  s.stop = read_stop(fields);
  if (const Json* ids = fields.array("stop_token_ids"))
    s.stop_token_ids = read_ids(*ids, "stop_token_ids", generator.vocab_size());

  const bool is_chat = request.endpoint == Endpoint::kChat;
  const std::optional<std::int64_t> old_name = fields.integer("max_tokens", 0);
  const std::optional<std::int64_t> new_name =
      is_chat ? fields.integer("max_completion_tokens", 0) : std::nullopt;
  s.max_tokens = new_name ? *new_name : old_name.value_or(is_chat ? -1 : kDefaultMaxTokens);
}

void read_stream(const Fields& fields, ApiRequest& request) {
  request.stream = fields.boolean("stream", request.endpoint == Endpoint::kGenerate);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!request.stream)
    throw RequestError("stream_options is allowed only together with \"stream\": true",
                       "stream_options");
  request.include_usage = Fields(*options).boolean("include_usage", false);
}

void read_chat(const Fields& fields, const Generator& generator, ApiRequest& request) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) {
    // Upstream's chat endpoint also takes a raw prompt, without a template.
    if (auto prompt = fields.string("prompt")) {
      request.param = "prompt";
      request.prompts.emplace_back(std::move(*prompt));
      return;
    }
    throw RequestError("messages is missing", "messages");
  }
  request.param = "messages";
  Json kwargs = Json::object();
  if (const Json* given = fields.object("chat_template_kwargs")) kwargs = *given;
  if (const Json* documents = fields.array("documents")) kwargs["documents"] = *documents;
  if (auto effort = fields.string("reasoning_effort")) kwargs["reasoning_effort"] = *effort;
  Json tools;
  const Json* choice = fields.find("tool_choice");
  if (const Json* given = fields.array("tools");
      given != nullptr && !given->empty() && (choice == nullptr || *choice != "none"))
    tools = *given;
  request.prompts.emplace_back(generator.render_chat(
      *messages, tools, kwargs, fields.boolean("add_generation_prompt", true)));
}

// A string, an array of strings, an array of token ids, or an array of arrays of token ids.
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

}  // namespace

GenerateRequest ApiRequest::generate_request(std::size_t choice) const {
  const std::size_t repetition = choice % static_cast<std::size_t>(n);
  GenerateRequest result{.prompt = prompts.at(choice / static_cast<std::size_t>(n)),
                         .sampling = sampling,
                         .param = param};
  if (sampling.seed) result.sampling.seed = *sampling.seed + repetition;
  return result;
}

ApiRequest parse_request(Endpoint endpoint, std::string_view body, const Generator& generator,
                         const RequestRules& rules) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{
      .endpoint = endpoint, .model = rules.served_name, .prompts = {}, .sampling = {}, .param = {}};
  check_model(fields, rules);
  refuse_unsupported(fields);
  read_stream(fields, request);
  read_sampling(fields, generator, request);
  request.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  if (endpoint == Endpoint::kChat)
    read_chat(fields, generator, request);
  else
    read_prompts(fields, generator, request);
  if (request.num_choices() > static_cast<std::size_t>(kMaxChoices))
    throw RequestError(
        fmt::format("{} prompts with n = {} are {} answers; one request may ask for {}",
                    request.prompts.size(), request.n, request.num_choices(), kMaxChoices),
        request.prompts.size() > 1 ? "prompt" : "n");
  return request;
}

}  // namespace minisgl
