// The loop on its own thread, with many others asking. Thread sanitizer watches this one.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "minisgl/error.h"
#include "testing/fake_executor.h"
#include "testing/scheduler_harness.h"

namespace minisgl {
namespace {

using testing_util::Answer;
using testing_util::draw_prompt;
using testing_util::FakeExecutor;
using testing_util::hashing_model;
using testing_util::Random;

constexpr int kVocab = 97;

/// Answers by id, from any thread.
class Answers {
 public:
  void take(std::span<const TokenEvent> events) {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : events) {
      Answer& answer = answers_[event.request.value];
      EXPECT_EQ(answer.finish, FinishReason::kNone);
      if (event.has_token) answer.tokens.push_back(event.token);
      answer.finish = event.finish;
    }
    changed_.notify_all();
  }
  Answer wait_for_end(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_[id.value].finish != FinishReason::kNone; });
    return answers_[id.value];
  }
  std::size_t wait_for_token(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const Answer& answer = answers_[id.value];
      return !answer.tokens.empty() || answer.finish != FinishReason::kNone;
    });
    return answers_[id.value].tokens.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Answer> answers_;
};

constexpr ExecutorLimits kLimits{.num_pages = 40,
                                 .page_size = 16,
                                 .max_rows = 8,
                                 .max_seq_len = 256,
                                 .max_step_tokens = 40,
                                 .vocab_size = kVocab};

class SchedulerThreadTest : public testing::TestWithParam<bool> {};

TEST_P(SchedulerThreadTest, ManyThreadsSubmitAndAbortAndEveryRequestIsAnsweredRight) {
  FakeExecutor executor(kLimits, hashing_model(kVocab), 1);
  executor.ids_are_ordered = false;
  Answers answers;
  Scheduler scheduler(executor, {.prefill_budget_tokens = 32, .overlap = GetParam()},
                      [&](auto events) { answers.take(events); });
  std::thread loop([&] { scheduler.run(); });

  constexpr int kThreads = 4, kRequests = 30;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t));
      const auto model = hashing_model(kVocab);
      for (int i = 0; i < kRequests; ++i) {
        const RequestId id{static_cast<std::uint64_t>(i * kThreads + t + 1)};
        std::vector<TokenId> history = draw_prompt(random, random.between(1, 80));
        const bool aborts = random.below(3) == 0;
        const std::int64_t most = aborts ? 150 : random.between(0, 30);
        scheduler.validate({id, history, {.max_tokens = most}});
        scheduler.submit({id, history, {.max_tokens = most}});
        if (aborts) {
          if (random.below(2) == 0) answers.wait_for_token(id);
          scheduler.abort(id);
        }
        const Answer answer = answers.wait_for_end(id);
        for (const TokenId token : answer.tokens) {
          EXPECT_EQ(token, model(history));
          history.push_back(token);
        }
        if (!aborts) {
          EXPECT_EQ(static_cast<std::int64_t>(answer.tokens.size()), most);
        }
        EXPECT_LE(scheduler.stats().running, kLimits.max_rows);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  scheduler.stop();
  loop.join();
  scheduler.check_integrity();
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.free_pages + stats.cached_pages, stats.total_pages);
  EXPECT_EQ(stats.locked_pages, 0);
}

TEST_P(SchedulerThreadTest, AfterALongPauseTheLoopGoesOn) {
  FakeExecutor executor(kLimits, hashing_model(kVocab), 4);
  Answers answers;
  Scheduler scheduler(executor, {.prefill_budget_tokens = 32, .overlap = GetParam()},
                      [&](auto events) { answers.take(events); });
  std::thread loop([&] { scheduler.run(); });
  for (std::uint64_t id = 1; id <= 2; ++id) {
    scheduler.submit({RequestId{id}, {1, 2, 3}, {.max_tokens = 5}});
    EXPECT_EQ(answers.wait_for_end(RequestId{id}).finish, FinishReason::kLength);
    // Longer than the loop waits before it verifies its ledgers (200 ms) and sleeps.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  scheduler.stop();
  loop.join();
}

TEST_P(SchedulerThreadTest, StopWhileThreadsSubmitLeavesNobodyWaiting) {
  FakeExecutor executor(kLimits, hashing_model(kVocab), 2);
  executor.ids_are_ordered = false;
  Answers answers;
  Scheduler scheduler(executor, {.prefill_budget_tokens = 32, .overlap = GetParam()},
                      [&](auto events) { answers.take(events); });
  std::thread loop([&] { scheduler.run(); });
  std::vector<std::thread> clients;
  for (int t = 0; t < 3; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const RequestId id{static_cast<std::uint64_t>(i * 3 + t + 1)};
        scheduler.submit({id, {1, 2, 3}, {.max_tokens = 20}});
        answers.wait_for_end(id);
      }
    });
  }
  answers.wait_for_end(RequestId{10});
  scheduler.stop();
  loop.join();
  for (std::thread& client : clients) client.join();
  scheduler.check_integrity();
}

TEST_P(SchedulerThreadTest, AFaultWhileThreadsSubmitLeavesNobodyWaiting) {
  FakeExecutor executor(kLimits, hashing_model(kVocab), 3);
  executor.fail_at_collect = 20;
  executor.ids_are_ordered = false;
  Answers answers;
  Scheduler scheduler(executor, {.prefill_budget_tokens = 32, .overlap = GetParam()},
                      [&](auto events) { answers.take(events); });
  std::thread loop([&] { EXPECT_THROW(scheduler.run(), Error); });
  std::vector<std::thread> clients;
  for (int t = 0; t < 3; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        const RequestId id{static_cast<std::uint64_t>(i * 3 + t + 1)};
        scheduler.submit({id, {1, 2, 3}, {.max_tokens = 20}});
        answers.wait_for_end(id);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  loop.join();
}

INSTANTIATE_TEST_SUITE_P(OffAndOn, SchedulerThreadTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Overlap" : "Plain"; });

}  // namespace
}  // namespace minisgl
