#include <utility>
#include <vector>

#include "server/generate/generate.h"
#include "server/openai/openai_json.h"
#include "server/request_fields.h"
#include "server/response_format.h"
#include "server/sse.h"

namespace minisgl {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;

class GenerateReply final : public Reply {
 public:
  explicit GenerateReply(const ApiRequest& request)
      : stream_(request.stream),
        include_usage_(request.include_usage),
        choices_(request.num_choices()) {}

  std::string add(std::size_t index, const GenerateUpdate& update) override {
    if (!stream_) {
      choices_[index].text += update.text;
      choices_[index].finish = update.finish;
      return {};
    }
    if (update.text.empty() && update.finish == FinishReason::kNone) return {};
    Json event = Json::object();
    if (choices_.size() > 1) event["index"] = index;
    event["text"] = update.text;
    if (update.finish != FinishReason::kNone)
      event["finish_reason"] = openai::finish_json(update.finish);
    return sse_event(dump(event));
  }
  std::string end_stream(const Usage& usage) override {
    std::string events;
    if (include_usage_)
      events = sse_event(dump({{"text", ""}, {"usage", openai::usage_json(usage)}}));
    return events.append(kSseDone);
  }
  std::string end_stream_with(int status, const std::string& message) override {
    return openai::end_stream_with_error(status, message);
  }

  HttpReply whole(const Usage& usage) const override {
    Json body = Json::object();
    if (choices_.size() == 1) {
      body = choice_json(choices_[0]);
    } else {
      body["choices"] = Json::array();
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        Json choice = {{"index", i}};
        choice.update(choice_json(choices_[i]));
        body["choices"].push_back(std::move(choice));
      }
    }
    body["usage"] = openai::usage_json(usage);
    return json_reply(body);
  }

 private:
  struct Choice {
    std::string text;
    FinishReason finish = FinishReason::kNone;
  };

  static Json choice_json(const Choice& choice) {
    return {{"text", choice.text}, {"finish_reason", openai::finish_json(choice.finish)}};
  }

  bool stream_;
  bool include_usage_;
  std::vector<Choice> choices_;  // stay empty when streamed
};

}  // namespace

Job open_mini_sglang_generate(const Json& body, const ApiContext& context) {
  const Fields fields(body);
  ApiRequest request{.model = context.rules.served_name};
  check_model(fields, context.rules);
  refuse_unsupported(fields);
  read_stream(fields, /*stream_by_default=*/true, request);
  request.sampling = read_sampling(fields, context.generator, {});
  request.sampling.max_tokens = fields.integer("max_tokens", 0).value_or(kDefaultMaxTokens);
  request.sampling.response_format = read_response_format(fields);
  read_prompts(fields, context.generator, request);
  read_num_choices(fields, request);
  auto reply = std::make_unique<GenerateReply>(request);
  return {.request = std::move(request), .reply = std::move(reply)};
}

}  // namespace minisgl
