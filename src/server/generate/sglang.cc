#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/generate/generate.h"
#include "server/openai/openai_json.h"
#include "server/request_fields.h"
#include "server/response_format.h"
#include "server/sse.h"

namespace minisgl {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 128;  // SGLang's
constexpr std::int64_t kMaxLogprobs = 20;

struct SglangOptions {
  bool logprobs = false;
  bool top_logprobs = false;
  std::int64_t logprob_start = -1;  ///< of the prompt; -1: none
  bool is_batch = false;            ///< the reply is an array
};

Json pair_of(const TextLogprob& token) {
  constexpr double kFloor = -9999.0;
  return {std::max(token.logprob, kFloor), token.token, nullptr};
}

Json list_of(const std::vector<TextLogprob>& tokens) {
  Json list = Json::array();
  for (const TextLogprob& token : tokens) list.push_back(pair_of(token));
  return list;
}

class SglangReply final : public Reply {
 public:
  SglangReply(const ApiContext& context, const ApiRequest& request, const SglangOptions& options)
      : stream_(request.stream),
        unique_id_(context.unique_id),
        options_(options),
        choices_(request.num_choices()) {}

  std::string add(std::size_t index, const GenerateUpdate& update) override {
    Choice& choice = choices_[index];
    choice.text += update.text;
    choice.ids.insert(choice.ids.end(), update.tokens.begin(), update.tokens.end());
    if (options_.logprobs) add_logprobs(choice, update);
    choice.last = update;
    choice.last.logprobs.clear();
    choice.last.prompt_logprobs.clear();
    if (!stream_ || (update.text.empty() && update.finish == FinishReason::kNone)) return {};
    Json event = choice_json(index);
    if (choices_.size() > 1) event["index"] = index;
    return sse_event(dump(event));
  }
  std::string end_stream(const Usage& /*usage*/) override { return std::string(kSseDone); }
  std::string end_stream_with(int status, const std::string& message) override {
    return openai::end_stream_with_error(status, message);
  }

  HttpReply whole(const Usage& /*usage*/) const override {
    if (!options_.is_batch) return json_reply(choice_json(0));
    Json all = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) all.push_back(choice_json(i));
    return json_reply(all);
  }

 private:
  struct Choice {
    std::string text;
    std::vector<TokenId> ids;
    Json output_logprobs = Json::array(), output_top = Json::array();
    Json input_logprobs = Json::array(), input_top = Json::array();
    GenerateUpdate last;
  };

  void add_logprobs(Choice& choice, const GenerateUpdate& update) const {
    for (const TextLogprobs& position : update.logprobs) {
      choice.output_logprobs.push_back(pair_of(position.chosen));
      choice.output_top.push_back(list_of(position.top));
    }
    for (std::size_t i = 0; i < update.prompt_logprobs.size(); ++i) {
      if (static_cast<std::int64_t>(i) < options_.logprob_start) continue;
      const auto& position = update.prompt_logprobs[i];
      choice.input_logprobs.push_back(position ? pair_of(position->chosen)
                                               : Json{nullptr, nullptr, nullptr});
      choice.input_top.push_back(position ? list_of(position->top) : Json());
    }
  }

  Json choice_json(std::size_t index) const {
    const Choice& choice = choices_[index];
    const GenerateUpdate& last = choice.last;
    Json meta = {{"id", fmt::format("{}{}", unique_id_, index)},
                 {"finish_reason", finish_json(last)},
                 {"prompt_tokens", last.prompt_tokens},
                 {"completion_tokens", last.completion_tokens},
                 {"cached_tokens", last.cached_tokens}};
    if (options_.logprobs) {
      meta["input_token_logprobs"] = choice.input_logprobs;
      meta["output_token_logprobs"] = choice.output_logprobs;
    }
    if (options_.top_logprobs) {
      meta["input_top_logprobs"] = choice.input_top;
      meta["output_top_logprobs"] = choice.output_top;
    }
    return {{"text", choice.text}, {"output_ids", choice.ids}, {"meta_info", std::move(meta)}};
  }

  static Json finish_json(const GenerateUpdate& last) {
    if (last.finish == FinishReason::kLength)
      return {{"type", "length"}, {"length", last.completion_tokens}};
    if (last.finish != FinishReason::kStop) return nullptr;
    Json reason = {{"type", "stop"}};
    if (const auto* text = std::get_if<std::string>(&last.stop_reason)) reason["matched"] = *text;
    if (const auto* token = std::get_if<TokenId>(&last.stop_reason)) reason["matched"] = *token;
    return reason;
  }

  bool stream_;
  std::string unique_id_;
  SglangOptions options_;
  std::vector<Choice> choices_;
};

// text: a string or several; input_ids: token ids, or several arrays of them. True for several.
bool read_inputs(const Fields& fields, const Generator& generator, ApiRequest& request) {
  const Json* text = fields.find("text");
  const Json* ids = fields.find("input_ids");
  if ((text == nullptr) == (ids == nullptr))
    throw RequestError("give one of text and input_ids", text == nullptr ? "text" : "input_ids");
  request.param = text != nullptr ? "text" : "input_ids";
  const Json& input = text != nullptr ? *text : *ids;
  const bool is_batch =
      input.is_array() && !input.empty() && (text != nullptr || input.front().is_array());
  const Json one = Json::array({input});
  for (const Json& prompt : is_batch ? input : one) {
    const bool fits = text != nullptr ? prompt.is_string() : prompt.is_array() && !prompt.empty();
    if (!fits)
      throw RequestError(
          fmt::format("{} must be {}, not {}", request.param,
                      text != nullptr ? "a string or an array of strings"
                                      : "an array of token ids or an array of such arrays",
                      describe(prompt)),
          request.param);
    if (text != nullptr)
      request.prompts.emplace_back(prompt.get<std::string>());
    else
      request.prompts.emplace_back(read_ids(prompt, request.param, generator.vocab_size()));
  }
  return is_batch;
}

SamplingParams read_params(const Fields& fields, const Generator& generator) {
  SamplingParams s = read_sampling(fields, generator, openai_sampling(generator));
  s.max_tokens = fields.integer("max_new_tokens", 0).value_or(kDefaultMaxTokens);
  if (const auto min = fields.integer("min_new_tokens", 0)) s.min_tokens = *min;
  if (const auto seed = fields.integer("sampling_seed")) s.seed = static_cast<std::uint64_t>(*seed);
  s.response_format = read_response_format(fields);
  return s;
}

void read_logprobs(const Fields& fields, SglangOptions& options, SamplingParams& sampling) {
  options.logprobs = fields.boolean("return_logprob", false);
  const std::int64_t top = fields.integer("top_logprobs_num", 0, kMaxLogprobs).value_or(0);
  options.logprob_start = fields.integer("logprob_start_len", -1).value_or(-1);
  if (!options.logprobs) return;
  options.top_logprobs = top > 0;
  sampling.num_logprobs = static_cast<int>(top);
  if (options.logprob_start >= 0) sampling.prompt_logprobs = static_cast<int>(top);
}

}  // namespace

Job open_sglang_generate(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  ApiRequest request{.model = context.rules.served_name};
  check_model(fields, context.rules);
  for (const char* field : {"lora_path", "image_data", "audio_data", "video_data", "input_embeds"})
    refuse_field(fields, field);
  request.stream = fields.boolean("stream", false);
  const Json none = Json::object();
  const Json* given = fields.object("sampling_params");
  const Fields params(given == nullptr ? none : *given);
  request.sampling = read_params(params, context.generator);
  SglangOptions options;
  read_logprobs(fields, options, request.sampling);
  options.is_batch = read_inputs(fields, context.generator, request);
  read_num_choices(params, request);
  options.is_batch = options.is_batch || request.n > 1;
  auto reply = std::make_unique<SglangReply>(context, request, options);
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl
