#include "server/answer.h"

#include <utility>

#include "server/sse.h"

namespace minisgl {
namespace {

Json finish_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    default: return nullptr;
  }
}

}  // namespace

Answer::Answer(const ApiRequest& request, std::string id, std::int64_t created)
    : endpoint_(request.endpoint),
      stream_(request.stream),
      include_usage_(request.include_usage),
      n_(static_cast<std::size_t>(request.n)),
      model_(request.model),
      id_(std::move(id)),
      created_(created),
      choices_(request.num_choices()),
      num_open_(choices_.size()) {}

std::string Answer::add(std::size_t index, const GenerateUpdate& update) {
  Choice& choice = choices_.at(index);
  if (failed_ || choice.finish != FinishReason::kNone) return {};
  choice.prompt_tokens = update.prompt_tokens;
  choice.cached_tokens = update.cached_tokens;
  choice.completion_tokens = update.completion_tokens;
  choice.finish = update.finish;
  if (update.finish == FinishReason::kError) return fail(500, update.error);
  if (update.finish == FinishReason::kAbort)
    return fail(503, "the request was aborted by the server");
  if (update.finish != FinishReason::kNone) --num_open_;
  if (!stream_) {
    choice.text += update.text;
    return {};
  }
  std::string events;
  if (!update.text.empty() || update.finish != FinishReason::kNone) events = chunk(index, update);
  if (num_open_ > 0) return events;
  if (include_usage_ && endpoint_ != Endpoint::kGenerate) {
    Json last = envelope(/*is_chunk=*/true);
    last["choices"] = Json::array();
    last["usage"] = usage_json();
    events += sse_event(dump(last));
  }
  return events.append(kSseDone);
}

std::string Answer::fail(int status, const std::string& message) {
  if (finished()) return {};
  failed_ = true;
  error_ = error_reply(status, message);
  return stream_ ? sse_event(error_.body).append(kSseDone) : std::string();
}

Json Answer::envelope(bool is_chunk) const {
  if (endpoint_ == Endpoint::kGenerate) return Json::object();
  const char* object = endpoint_ == Endpoint::kCompletion ? "text_completion"
                       : is_chunk                         ? "chat.completion.chunk"
                                                          : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

std::string Answer::chunk(std::size_t index, const GenerateUpdate& update) {
  const bool is_first = !std::exchange(choices_[index].started, true);
  const Json finish = finish_json(update.finish);
  Json event = envelope(/*is_chunk=*/true);
  if (endpoint_ == Endpoint::kGenerate) {
    if (choices_.size() > 1) event["index"] = index;
    event["text"] = update.text;
    if (!finish.is_null()) event["finish_reason"] = finish;
    if (include_usage_ && num_open_ == 0) event["usage"] = usage_json();
    return sse_event(dump(event));
  }
  Json choice = {{"index", index}};
  if (endpoint_ == Endpoint::kChat) {
    Json delta = Json::object();
    if (is_first) delta["role"] = "assistant";
    if (is_first || !update.text.empty()) delta["content"] = update.text;
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = update.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish;
  event["choices"] = Json::array({std::move(choice)});
  if (include_usage_) event["usage"] = nullptr;
  return sse_event(dump(event));
}

Json Answer::whole_choice(std::size_t index) const {
  const Choice& choice = choices_[index];
  Json result = {{"index", index}};
  if (endpoint_ == Endpoint::kChat)
    result["message"] = {{"role", "assistant"}, {"content", choice.text}};
  else
    result["text"] = choice.text;
  result["logprobs"] = nullptr;
  result["finish_reason"] = finish_json(choice.finish);
  return result;
}

HttpReply Answer::whole() const {
  if (failed_) return error_;
  Json body = envelope(/*is_chunk=*/false);
  if (endpoint_ == Endpoint::kGenerate && choices_.size() == 1) {
    body["text"] = choices_[0].text;
    body["finish_reason"] = finish_json(choices_[0].finish);
  } else {
    body["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) body["choices"].push_back(whole_choice(i));
  }
  body["usage"] = usage_json();
  return {.status = 200, .body = dump(body), .content_type = "application/json", .headers = {}};
}

Usage Answer::usage() const {
  Usage usage;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].completion_tokens;
    if (i % n_ != 0) continue;
    usage.prompt_tokens += choices_[i].prompt_tokens;
    usage.cached_tokens += choices_[i].cached_tokens;
  }
  return usage;
}

Json Answer::usage_json() const {
  const Usage u = usage();
  return {{"prompt_tokens", u.prompt_tokens},
          {"completion_tokens", u.completion_tokens},
          {"total_tokens", u.prompt_tokens + u.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", u.cached_tokens}}}};
}

}  // namespace minisgl
