#include "server/answer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/request_faults.h"

namespace minisgl {
namespace {

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Joins an update to those before it.
void join(GenerateUpdate& all, const GenerateUpdate& update) {
  GenerateUpdate joined = update;
  joined.text.insert(0, all.text);
  joined.tokens = std::move(all.tokens);
  append(joined.tokens, update.tokens);
  joined.logprobs = std::move(all.logprobs);
  append(joined.logprobs, update.logprobs);
  joined.prompt_logprobs = std::move(all.prompt_logprobs);
  append(joined.prompt_logprobs, update.prompt_logprobs);
  all = std::move(joined);
}

// OpenAI: "the one with the highest log probability per token".
double likelihood(const GenerateUpdate& answer) {
  return answer.cumulative_logprob / std::max(1, answer.completion_tokens);
}

}  // namespace

Answer::Answer(const ApiRequest& request, std::unique_ptr<Reply> reply)
    : stream_(request.stream),
      n_(static_cast<std::size_t>(request.n)),
      best_of_(static_cast<std::size_t>(request.best_of)),
      reply_(std::move(reply)),
      answers_(request.num_answers()),
      num_open_(answers_.size()) {}

std::string Answer::add(std::size_t index, const GenerateUpdate& update) {
  State& answer = answers_.at(index);
  if (failed_ || answer.finish != FinishReason::kNone) return {};
  answer.finish = update.finish;
  answer.prompt_tokens = update.prompt_tokens;
  answer.cached_tokens = update.cached_tokens;
  answer.completion_tokens = update.completion_tokens;
  if (update.finish == FinishReason::kError)
    return fail(is_fault_of_request(update.error) ? 400 : 500, update.error);
  if (update.finish == FinishReason::kAbort)
    return fail(503, "the request was aborted by the server");
  if (update.finish != FinishReason::kNone) --num_open_;
  if (best_of_ > n_) {
    join(answer.all, update);
    if (num_open_ == 0) choose_best();
    return {};
  }
  std::string bytes = reply_->add(index, update);
  if (stream_ && num_open_ == 0) bytes += reply_->end_stream(usage());
  return bytes;
}

// Of equals, the first.
void Answer::choose_best() {
  for (std::size_t first = 0; first < answers_.size(); first += best_of_) {
    std::vector<std::size_t> order(best_of_);
    std::iota(order.begin(), order.end(), first);
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return likelihood(answers_[a].all) > likelihood(answers_[b].all);
    });
    for (std::size_t i = 0; i < n_; ++i)
      reply_->add(first / best_of_ * n_ + i, answers_[order[i]].all);
  }
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
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    usage.completion_tokens += answers_[i].completion_tokens;
    if (i % best_of_ != 0) continue;
    usage.prompt_tokens += answers_[i].prompt_tokens;
    usage.cached_tokens += answers_[i].cached_tokens;
  }
  return usage;
}

}  // namespace minisgl
