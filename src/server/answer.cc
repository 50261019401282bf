#include "server/answer.h"

#include <utility>

namespace minisgl {

Answer::Answer(const ApiRequest& request, std::unique_ptr<Reply> reply)
    : stream_(request.stream),
      n_(static_cast<std::size_t>(request.n)),
      reply_(std::move(reply)),
      choices_(request.num_choices()),
      num_open_(choices_.size()) {}

std::string Answer::add(std::size_t index, const GenerateUpdate& update) {
  Choice& choice = choices_.at(index);
  if (failed_ || choice.finish != FinishReason::kNone) return {};
  choice = {.finish = update.finish,
            .prompt_tokens = update.prompt_tokens,
            .cached_tokens = update.cached_tokens,
            .completion_tokens = update.completion_tokens};
  if (update.finish == FinishReason::kError) return fail(500, update.error);
  if (update.finish == FinishReason::kAbort)
    return fail(503, "the request was aborted by the server");
  if (update.finish != FinishReason::kNone) --num_open_;
  std::string bytes = reply_->add(index, update);
  if (stream_ && num_open_ == 0) bytes += reply_->end_stream(usage());
  return bytes;
}

std::string Answer::fail(int status, const std::string& message) {
  if (finished()) return {};
  failed_ = true;
  if (stream_) return reply_->end_stream_with(status, message);
  error_ = reply_->failure(status, message);
  return {};
}

HttpReply Answer::whole() const { return failed_ ? error_ : reply_->whole(usage()); }

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

}  // namespace minisgl
