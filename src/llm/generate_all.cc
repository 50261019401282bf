#include "llm/generate_all.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>

namespace minisgl {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: return "abort";
    case FinishReason::kError: return "error";
  }
  return "";
}

void add_update(GenerateUpdate update, Completion& completion) {
  Completion& c = completion;
  c.text += update.text;
  c.token_ids.insert(c.token_ids.end(), update.tokens.begin(), update.tokens.end());
  c.prompt_tokens = update.prompt_tokens;
  c.cached_tokens = update.cached_tokens;
  c.completion_tokens = update.completion_tokens;
  c.finish_reason = to_string(update.finish);
  c.error = std::move(update.error);
  c.stop_reason = std::move(update.stop_reason);
  std::move(update.logprobs.begin(), update.logprobs.end(), std::back_inserter(c.logprobs));
  c.cumulative_logprob = update.cumulative_logprob;
  if (!update.prompt_logprobs.empty()) c.prompt_logprobs = std::move(update.prompt_logprobs);
}

std::vector<Completion> generate_all(
    Generator& generator, std::vector<GenerateRequest> requests,
    const std::function<void(std::size_t, const Completion&)>& on_done) {
  std::vector<Completion> completions(requests.size());
  std::mutex mutex;
  std::condition_variable all_done;
  std::size_t left = requests.size();
  const auto finish = [&](std::size_t i) {  // with the mutex held
    if (on_done) on_done(i, completions[i]);
    if (--left == 0) all_done.notify_all();
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto on_update = [&, i](GenerateUpdate update) {
      const std::lock_guard lock(mutex);
      const bool is_last = update.finish != FinishReason::kNone;
      add_update(std::move(update), completions[i]);
      if (is_last) finish(i);
    };
    try {
      generator.submit(std::move(requests[i]), on_update);
    } catch (const RequestError& e) {
      const std::lock_guard lock(mutex);
      completions[i].finish_reason = "error";
      completions[i].error = e.what();
      finish(i);
    }
  }
  std::unique_lock lock(mutex);
  all_done.wait(lock, [&] { return left == 0; });
  return completions;
}

}  // namespace minisgl
