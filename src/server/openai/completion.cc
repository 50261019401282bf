#include "server/openai/completion.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "server/openai/openai_json.h"
#include "server/request_fields.h"

namespace minisgl::openai {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's
constexpr const char* kObject = "text_completion";

class CompletionReply final : public Reply {
 public:
  CompletionReply(const ApiContext& context, const ApiRequest& request)
      : stream_(request.stream),
        envelope_(envelope(context, "cmpl-" + context.unique_id, kObject)),
        writer_(context, "cmpl-" + context.unique_id, kObject, request.include_usage),
        choices_(request.num_choices()) {}

  std::string add(std::size_t index, const GenerateUpdate& update) override {
    if (!stream_) {
      choices_[index].text += update.text;
      choices_[index].finish = update.finish;
      return {};
    }
    if (update.text.empty() && update.finish == FinishReason::kNone) return {};
    return writer_.event(index, fmt::format(R"("text":{},"logprobs":null)", dump(update.text)),
                         update.finish);
  }
  std::string end_stream(const Usage& usage) override { return writer_.end(usage); }
  std::string end_stream_with(int status, const std::string& message) override {
    return end_stream_with_error(status, message);
  }

  HttpReply whole(const Usage& usage) const override {
    Json body = envelope_;
    body["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i)
      body["choices"].push_back({{"index", i},
                                 {"text", choices_[i].text},
                                 {"logprobs", nullptr},
                                 {"finish_reason", finish_json(choices_[i].finish)}});
    body["usage"] = usage_json(usage);
    return json_reply(body);
  }

 private:
  struct Choice {
    std::string text;
    FinishReason finish = FinishReason::kNone;
  };

  bool stream_;
  Json envelope_;
  ChunkWriter writer_;
  std::vector<Choice> choices_;  // stay empty when streamed
};

}  // namespace

Job open_completion(std::string_view body, const ApiContext& context) {
  const Json object = parse_object(body);
  const Fields fields(object);
  ApiRequest request{
      .model = context.rules.served_name, .prompts = {}, .sampling = {}, .param = {}};
  check_model(fields, context.rules);
  refuse_unsupported(fields);
  read_stream(fields, /*stream_by_default=*/false, request);
  request.sampling = read_sampling(fields, context.generator, openai_sampling(context.generator));
  request.sampling.max_tokens = fields.integer("max_tokens", 0).value_or(kDefaultMaxTokens);
  read_prompts(fields, context.generator, request);
  read_num_choices(fields, request);
  auto reply = std::make_unique<CompletionReply>(context, request);
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl::openai
