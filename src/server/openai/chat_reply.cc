#include "server/openai/chat_reply.h"

#include <fmt/format.h>

#include <utility>

namespace minisgl::openai {

ChatReply::ChatReply(const ApiContext& context, const ApiRequest& request)
    : stream_(request.stream),
      envelope_(envelope(context, "chatcmpl-" + context.unique_id, "chat.completion")),
      writer_(context, "chatcmpl-" + context.unique_id, "chat.completion.chunk",
              request.include_usage),
      choices_(request.num_choices()) {}

std::string ChatReply::add(std::size_t index, const GenerateUpdate& update) {
  Choice& choice = choices_[index];
  if (!stream_) {
    choice.text += update.text;
    choice.finish = update.finish;
    return {};
  }
  if (update.text.empty() && update.finish == FinishReason::kNone) return {};
  const bool is_first = !std::exchange(choice.started, true);
  Json delta = Json::object();
  if (is_first) delta["role"] = "assistant";
  if (is_first || !update.text.empty()) delta["content"] = update.text;
  return writer_.event(index, fmt::format(R"("delta":{},"logprobs":null)", dump(delta)),
                       update.finish);
}

HttpReply ChatReply::whole(const Usage& usage) const {
  Json body = envelope_;
  body["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i)
    body["choices"].push_back({{"index", i},
                               {"message", {{"role", "assistant"}, {"content", choices_[i].text}}},
                               {"logprobs", nullptr},
                               {"finish_reason", finish_json(choices_[i].finish)}});
  body["usage"] = usage_json(usage);
  return json_reply(body);
}

}  // namespace minisgl::openai
