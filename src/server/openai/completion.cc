#include "server/openai/completion.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "server/openai/logprobs_json.h"
#include "server/openai/openai_json.h"
#include "server/request_fields.h"
#include "server/response_format.h"

namespace minisgl::openai {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's
constexpr std::int64_t kMaxLogprobs = 20;       // OpenAI's is 5
constexpr const char* kObject = "text_completion";

/// A prompt that is repeated before its answer.
struct Echo {
  std::string text;
  std::vector<TextLogprob> tokens;  // if log-probabilities are wanted
};

struct CompletionOptions {
  bool logprobs = false;
  std::vector<Echo> echoes = {};  // of each prompt, or none
};

class CompletionReply final : public Reply {
 public:
  CompletionReply(const ApiContext& context, const ApiRequest& request, CompletionOptions options)
      : stream_(request.stream),
        n_(static_cast<std::size_t>(request.n)),
        options_(std::move(options)),
        envelope_(envelope(context, "cmpl-" + context.unique_id, kObject)),
        writer_(context, "cmpl-" + context.unique_id, kObject, request.include_usage),
        choices_(request.num_choices()) {}

  std::string add(std::size_t index, const GenerateUpdate& update) override {
    Choice& choice = choices_[index];
    choice.finish = update.finish;
    if (!std::exchange(choice.started, true)) echo(index, update);
    choice.text += update.text;
    if (options_.logprobs)
      for (const TextLogprobs& position : listed_logprobs(update)) choice.logprobs.add(position);
    if (!stream_ || (choice.text.empty() && update.finish == FinishReason::kNone)) return {};
    const std::string logprobs = options_.logprobs ? dump(choice.logprobs.take()) : "null";
    return writer_.event(
        index,
        fmt::format(R"("text":{},"logprobs":{})", dump(std::exchange(choice.text, {})), logprobs),
        finish_name(update.finish));
  }
  std::string end_stream(const Usage& usage) override { return writer_.end(usage); }
  std::string end_stream_with(int status, const std::string& message) override {
    return end_stream_with_error(status, message);
  }

  HttpReply whole(const Usage& usage) const override {
    Json body = envelope_;
    body["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      CompletionLogprobs logprobs = choices_[i].logprobs;
      body["choices"].push_back({{"index", i},
                                 {"text", choices_[i].text},
                                 {"logprobs", options_.logprobs ? logprobs.take() : Json()},
                                 {"finish_reason", finish_json(choices_[i].finish)}});
    }
    body["usage"] = usage_json(usage);
    return json_reply(body);
  }

 private:
  struct Choice {
    std::string text;  // not sent yet
    CompletionLogprobs logprobs;
    FinishReason finish = FinishReason::kNone;
    bool started = false;
  };

  void echo(std::size_t index, const GenerateUpdate& update) {
    if (options_.echoes.empty()) return;
    Choice& choice = choices_[index];
    const Echo& prompt = options_.echoes[index / n_];
    choice.text = prompt.text;
    for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
      const bool known = i < update.prompt_logprobs.size() && update.prompt_logprobs[i];
      choice.logprobs.add(
          known ? *update.prompt_logprobs[i] : TextLogprobs{.chosen = prompt.tokens[i], .top = {}},
          /*null_chosen=*/!known);
    }
  }

  bool stream_;
  std::size_t n_;
  CompletionOptions options_;
  Json envelope_;
  ChunkWriter writer_;
  std::vector<Choice> choices_;
};

// The prompts' texts; the prompts become token ids, so that they are encoded once.
std::vector<Echo> read_echo(const Generator& generator, bool logprobs, ApiRequest& request) {
  std::vector<Echo> echoes;
  for (auto& prompt : request.prompts) {
    std::vector<TokenId> ids = generator.encode(prompt, /*add_special=*/true);
    Echo echo;
    if (const auto* text = std::get_if<std::string>(&prompt))
      echo.text = *text;
    else
      echo.text = generator.decode(ids, request.sampling.skip_special_tokens);
    if (logprobs)
      for (const TokenId id : ids)
        echo.tokens.push_back({.token = id, .bytes = generator.token_bytes(id)});
    echoes.push_back(std::move(echo));
    prompt = std::move(ids);
  }
  return echoes;
}

}  // namespace

Job open_completion(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{.model = context.rules.served_name};
  check_model(fields, context.rules);
  refuse_unsupported(fields);
  refuse_field(fields, "top_logprobs");
  read_stream(fields, /*stream_by_default=*/false, request);
  request.sampling = read_sampling(fields, context.generator, openai_sampling(context.generator));
  request.sampling.max_tokens = fields.integer("max_tokens", 0).value_or(kDefaultMaxTokens);
  request.sampling.response_format = read_response_format(fields);
  read_prompts(fields, context.generator, request);
  read_num_choices(fields, request);
  CompletionOptions options;
  if (const auto logprobs = fields.integer("logprobs", 0, kMaxLogprobs)) {
    options.logprobs = true;
    request.sampling.num_logprobs = static_cast<int>(*logprobs);
  }
  if (fields.boolean("echo", false)) {
    if (options.logprobs) request.sampling.prompt_logprobs = request.sampling.num_logprobs;
    options.echoes = read_echo(context.generator, options.logprobs, request);
  }
  auto reply = std::make_unique<CompletionReply>(context, request, std::move(options));
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl::openai
