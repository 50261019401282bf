// A scheduler on a FakeExecutor, and what came out of it.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "testing/fake_executor.h"

namespace minisgl::testing_util {

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  std::int32_t cached_tokens = 0;
  std::string error;
  std::vector<PositionLogprobs> logprobs, prompt_logprobs;
};

struct HarnessOptions {
  std::int32_t num_pages = 400, page_size = 1, max_rows = 64, max_seq_len = 256, vocab_size = 97;
  SchedulerConfig config;
  TokenModel model = nullptr;  ///< hashing_model() unless set
  std::uint64_t seed = 1;      ///< of the executor's delays
};

/// Ids are 1, 2, ... in order of submit(). Used by one thread.
class Harness {
 public:
  explicit Harness(HarnessOptions options)
      : model_(options.model ? options.model : hashing_model(options.vocab_size)),
        eos_ids_(options.config.eos_ids),
        room_(std::min(options.max_seq_len, options.num_pages * options.page_size)),
        executor({.num_pages = options.num_pages,
                  .page_size = options.page_size,
                  .max_rows = options.max_rows,
                  .max_seq_len = options.max_seq_len,
                  .max_step_tokens = options.config.prefill_budget_tokens + options.max_rows,
                  .vocab_size = options.vocab_size},
                 model_, options.seed),
        scheduler(executor, options.config, [this](auto events) { take(events); }) {}

  RequestId submit(std::vector<TokenId> prompt, SamplingParams sampling,
                   std::unique_ptr<TokenConstraint> constraint = nullptr) {
    const RequestId id{++num_submitted_};
    requests_[id.value] = {prompt, sampling};
    scheduler.submit({id, std::move(prompt), std::move(sampling), std::move(constraint)});
    return id;
  }

  /// One step; verifies the ledgers after it.
  bool step() {
    const bool worked = scheduler.step();
    scheduler.check_integrity();
    const SchedulerStats stats = scheduler.stats();
    if (stats.running == 0 && stats.waiting == 0) {
      EXPECT_EQ(stats.free_pages + stats.cached_pages, stats.total_pages)
          << "pages belong to a request that is not counted";
    }
    return worked;
  }

  /// Runs until there is nothing to do, then verifies that all pages are free or cached.
  void finish() {
    while (step()) {
    }
    const SchedulerStats stats = scheduler.stats();
    EXPECT_EQ(stats.free_pages + stats.cached_pages, stats.total_pages);
    EXPECT_EQ(stats.locked_pages, 0);
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    for (const auto& [id, request] : requests_) {
      EXPECT_NE(answers[id].finish, FinishReason::kNone) << "request " << id << " was not answered";
    }
  }

  /// What the model alone says to a request.
  Answer expected(RequestId id) const {
    const auto& [prompt, sampling] = requests_.at(id.value);
    Answer answer;
    std::vector<TokenId> history = prompt;
    const auto most =
        std::min<std::int64_t>(sampling.max_tokens, room_ - static_cast<int>(prompt.size()));
    answer.finish = FinishReason::kLength;
    while (static_cast<std::int64_t>(answer.tokens.size()) < most) {
      const TokenId token = model_(history);
      history.push_back(token);
      answer.tokens.push_back(token);
      const auto is_in = [token](const auto& ids) {
        return std::find(ids.begin(), ids.end(), token) != ids.end();
      };
      if ((!sampling.ignore_eos && is_in(eos_ids_)) || is_in(sampling.stop_token_ids)) {
        answer.finish = FinishReason::kStop;
        break;
      }
    }
    return answer;
  }

  /// The answer equals the model's; an aborted one is a beginning of it.
  void expect_right(RequestId id) {
    SCOPED_TRACE("request " + std::to_string(id.value));
    const Answer& answer = answers[id.value];
    Answer right = expected(id);
    if (answer.finish == FinishReason::kAbort) {
      ASSERT_LE(answer.tokens.size(), right.tokens.size());
      right.tokens.resize(answer.tokens.size());
    } else {
      ASSERT_EQ(answer.finish, right.finish);
    }
    ASSERT_EQ(answer.tokens, right.tokens);
  }
  void expect_all_right() {
    for (const auto& [id, request] : requests_) expect_right(RequestId{id});
  }

 private:
  void take(std::span<const TokenEvent> events) {
    for (const TokenEvent& event : events) {
      Answer& answer = answers[event.request.value];
      EXPECT_EQ(answer.finish, FinishReason::kNone)
          << "an event of request " << event.request.value << " after its last";
      if (event.has_token) answer.tokens.push_back(event.token);
      answer.finish = event.finish;
      answer.cached_tokens = event.cached_tokens;
      answer.error = event.error;
      if (event.logprobs) answer.logprobs.push_back(*event.logprobs);
      if (!event.prompt_logprobs.empty()) answer.prompt_logprobs = event.prompt_logprobs;
    }
    if (on_events) on_events(events);
  }

  TokenModel model_;
  std::vector<TokenId> eos_ids_;
  std::int64_t room_;  // tokens that a request may have
  std::uint64_t num_submitted_ = 0;
  std::map<std::uint64_t, std::pair<std::vector<TokenId>, SamplingParams>> requests_;

 public:
  FakeExecutor executor;
  std::map<std::uint64_t, Answer> answers;
  std::function<void(std::span<const TokenEvent>)> on_events;
  Scheduler scheduler;  // last: it uses the others
};

/// `count` tokens of `random`, each in [1, vocab_size): 0 is left for end-of-sequence.
inline std::vector<TokenId> draw_prompt(Random& random, std::int64_t count,
                                        std::int32_t vocab_size = 97) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(random.between(1, vocab_size - 1)));
  }
  return tokens;
}

}  // namespace minisgl::testing_util
