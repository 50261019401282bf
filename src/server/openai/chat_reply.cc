#include "server/openai/chat_reply.h"

#include <fmt/format.h>

#include <utility>

#include "server/chat_prompt.h"
#include "server/openai/logprobs_json.h"

namespace minisgl::openai {

using Kind = ChatPiece::Kind;

ChatReply::ChatReply(const ApiContext& context, const ApiRequest& request, const Options& options)
    : stream_(request.stream),
      wants_logprobs_(options.logprobs),
      unique_id_(context.unique_id),
      envelope_(envelope(context, "chatcmpl-" + context.unique_id, "chat.completion")),
      writer_(context, "chatcmpl-" + context.unique_id, "chat.completion.chunk",
              request.include_usage) {
  for (std::size_t i = 0; i < request.num_choices(); ++i) choices_.emplace_back(options.format);
}

std::string ChatReply::add(std::size_t index, const GenerateUpdate& update) {
  Choice& choice = choices_[index];
  if (wants_logprobs_)
    for (TextLogprobs& position : listed_logprobs(update))
      choice.logprobs.push_back(std::move(position));
  std::vector<ChatPiece> pieces = choice.parser.push(update.text);
  if (update.finish != FinishReason::kNone)
    for (ChatPiece& piece : choice.parser.finish()) pieces.push_back(std::move(piece));
  choice.finish = update.finish;
  if (stream_) return events(index, pieces);
  collect(index, pieces);
  return {};
}

std::string ChatReply::call_id(std::size_t index) const {
  return tool_call_id(unique_id_, index, choices_[index].num_calls);
}

// A call that was cut off by the limit of tokens is not one that the client should make.
const char* ChatReply::finish_reason(const Choice& choice) {
  switch (choice.finish) {
    case FinishReason::kStop: return choice.num_calls > 0 ? "tool_calls" : "stop";
    case FinishReason::kLength: return "length";
    default: return nullptr;
  }
}

std::string ChatReply::events(std::size_t index, const std::vector<ChatPiece>& pieces) {
  Choice& choice = choices_[index];
  std::string events;
  // The finish reason goes with the last piece of content, as most answers end in it.
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ChatPiece& piece = pieces[i];
    Json delta = Json::object();
    if (piece.kind == Kind::kReasoning) {
      delta["reasoning_content"] = piece.text;
    } else if (piece.kind == Kind::kContent) {
      delta["content"] = piece.text;
    } else if (piece.kind == Kind::kCall) {
      delta["tool_calls"] =
          Json::array({{{"index", choice.num_calls},
                        {"id", call_id(index)},
                        {"type", "function"},
                        {"function", {{"name", piece.text}, {"arguments", ""}}}}});
      ++choice.num_calls;
    } else {
      delta["tool_calls"] = Json::array(
          {{{"index", choice.num_calls - 1}, {"function", {{"arguments", piece.text}}}}});
    }
    const bool is_last = i + 1 == pieces.size();
    events += event(index, std::move(delta), is_last ? finish_reason(choice) : nullptr);
  }
  if (pieces.empty() && choice.finish != FinishReason::kNone)
    events = event(index, Json::object(), finish_reason(choice));
  return events;
}

std::string ChatReply::event(std::size_t index, Json delta, const char* finish_reason) {
  Choice& choice = choices_[index];
  if (!std::exchange(choice.started, true)) {
    Json first = {{"role", "assistant"}};
    // Clients that only join content expect a string in the first chunk.
    first["content"] = delta.empty() ? Json("") : Json();
    first.update(delta);
    delta = std::move(first);
  }
  std::string logprobs = "null";
  if (!choice.logprobs.empty()) logprobs = dump(chat_logprobs(std::exchange(choice.logprobs, {})));
  return writer_.event(index, fmt::format(R"("delta":{},"logprobs":{})", dump(delta), logprobs),
                       finish_reason);
}

void ChatReply::collect(std::size_t index, const std::vector<ChatPiece>& pieces) {
  Choice& choice = choices_[index];
  for (const ChatPiece& piece : pieces) {
    if (piece.kind == Kind::kReasoning) {
      choice.reasoning += piece.text;
    } else if (piece.kind == Kind::kContent) {
      choice.content += piece.text;
    } else if (piece.kind == Kind::kCall) {
      choice.calls.push_back({{"id", call_id(index)},
                              {"type", "function"},
                              {"function", {{"name", piece.text}, {"arguments", ""}}}});
      ++choice.num_calls;
    } else {
      choice.calls.back()["function"]["arguments"].get_ref<std::string&>() += piece.text;
    }
  }
}

Json ChatReply::whole_choice(std::size_t index) const {
  const Choice& choice = choices_[index];
  const bool has_other = !choice.calls.empty() || !choice.reasoning.empty();
  Json message = {{"role", "assistant"}};
  message["content"] = choice.content.empty() && has_other ? Json() : Json(choice.content);
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (!choice.calls.empty()) message["tool_calls"] = choice.calls;
  const char* reason = finish_reason(choice);
  return {{"index", index},
          {"message", std::move(message)},
          {"logprobs", wants_logprobs_ ? chat_logprobs(choice.logprobs) : Json()},
          {"finish_reason", reason == nullptr ? Json() : Json(reason)}};
}

HttpReply ChatReply::whole(const Usage& usage) const {
  Json body = envelope_;
  body["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) body["choices"].push_back(whole_choice(i));
  body["usage"] = usage_json(usage);
  return json_reply(body);
}

}  // namespace minisgl::openai
