// What the scheduler promises in its header: limits, finish reasons, policy, faults.

#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <string>

#include "minisgl/error.h"
#include "testing/scheduler_harness.h"

namespace minisgl {
namespace {

using testing_util::draw_prompt;
using testing_util::Harness;
using testing_util::HarnessOptions;
using testing_util::Random;

struct Refusal {
  std::string message, param, code;
};

Refusal refusal(const Harness& harness, std::vector<TokenId> prompt, SamplingParams sampling = {}) {
  try {
    harness.scheduler.validate({RequestId{9}, std::move(prompt), std::move(sampling)});
  } catch (const RequestError& e) {
    return {e.what(), e.param(), e.code()};
  }
  return {"no error", "", ""};
}

class OverlapTest : public testing::TestWithParam<bool> {
 protected:
  static HarnessOptions options() {
    HarnessOptions options;
    options.config.overlap = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(OffAndOn, OverlapTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "On" : "Off"; });

// CASES LIM-1, PARITY A24 4.
TEST_P(OverlapTest, Lim1APromptThatFillsTheContextIsRefusedWithBothLengths) {
  HarnessOptions small = options();
  small.max_seq_len = 64;
  Harness harness(small);
  for (const int length : {64, 300}) {
    const Refusal refused = refusal(harness, std::vector<TokenId>(length, 5));
    EXPECT_NE(refused.message.find(std::to_string(length) + " tokens"), std::string::npos);
    EXPECT_NE(refused.message.find("context of 64 tokens"), std::string::npos);
    EXPECT_EQ(refused.param, "prompt");
    EXPECT_EQ(refused.code, "context_length_exceeded");
  }
  // Submitted in spite of that it is answered, and others are served.
  const RequestId refused = harness.submit(std::vector<TokenId>(300, 5), {});
  const RequestId last = harness.submit(std::vector<TokenId>(63, 5), {.max_tokens = 8});
  harness.finish();
  EXPECT_EQ(harness.answers[refused.value].finish, FinishReason::kError);
  EXPECT_NE(harness.answers[refused.value].error.find("300 tokens"), std::string::npos);
  EXPECT_EQ(harness.answers[last.value].tokens.size(), 1U) << "one token is left of the context";
  EXPECT_EQ(harness.answers[last.value].finish, FinishReason::kLength);
  harness.expect_right(last);
}

// CASES LIM-2.
TEST_P(OverlapTest, Lim2EmptyPromptsAndNegativeLengthsAreRefusedAndNothingToGenerateIsNoToken) {
  Harness harness(options());
  EXPECT_EQ(refusal(harness, {}).message, "the prompt is empty; it must have at least one token");
  EXPECT_EQ(refusal(harness, {1}, {.max_tokens = -1}).param, "max_tokens");
  const RequestId empty = harness.submit({}, {});
  const RequestId negative = harness.submit({1}, {.max_tokens = -1});
  const RequestId nothing = harness.submit({1, 2}, {.max_tokens = 0});
  harness.finish();
  EXPECT_EQ(harness.answers[empty.value].finish, FinishReason::kError);
  EXPECT_EQ(harness.answers[negative.value].finish, FinishReason::kError);
  EXPECT_EQ(harness.answers[nothing.value].finish, FinishReason::kLength);
  EXPECT_TRUE(harness.answers[nothing.value].tokens.empty());
  EXPECT_EQ(harness.executor.num_launched, 0);
}

// CASES LIM-3.
TEST_P(OverlapTest, Lim3IdsOutsideTheVocabularyAreRefusedOnBothSides) {
  Harness harness(options());
  EXPECT_EQ(refusal(harness, {1, 97}).message,
            "token id 97 at position 1 of the prompt is outside the vocabulary of 97 ids");
  EXPECT_EQ(refusal(harness, {-1}).param, "prompt");
  EXPECT_EQ(refusal(harness, {96}).message, "no error");
  const RequestId bad = harness.submit({-1}, {});
  const RequestId good = harness.submit({96}, {.max_tokens = 3});
  harness.finish();
  EXPECT_EQ(harness.answers[bad.value].finish, FinishReason::kError);
  harness.expect_right(good);
}

// CASES LIM-4 (a): pages are what is scarce, not tokens.
TEST_P(OverlapTest, Lim4AdmissionCountsWholePagesAndTheQueueWaits) {
  HarnessOptions small = options();
  small.num_pages = 8;
  small.page_size = 16;
  Harness harness(small);
  Random random(4);
  for (int i = 0; i < 40; ++i) harness.submit(draw_prompt(random, 1 + i % 5), {.max_tokens = 12});
  harness.finish();
  harness.expect_all_right();
  EXPECT_EQ(harness.executor.max_rows_seen, 8) << "each needs one page, so eight run at once";
}

// CASES LIM-4 (b): what can never fit is refused or cut; it does not block the queue.
TEST_P(OverlapTest, Lim4AnAnswerLongerThanThePoolIsCutToIt) {
  HarnessOptions small = options();
  small.num_pages = 48;
  small.max_seq_len = 2048;
  Harness harness(small);
  Random random(5);
  const RequestId large = harness.submit(draw_prompt(random, 47), {.max_tokens = 500});
  harness.step();
  const RequestId second = harness.submit(draw_prompt(random, 5), {.max_tokens = 4});
  harness.finish();
  EXPECT_EQ(harness.answers[large.value].tokens.size(), 1U);
  EXPECT_EQ(harness.answers[large.value].finish, FinishReason::kLength);
  harness.expect_right(second);
  const Refusal refused = refusal(harness, std::vector<TokenId>(60, 5));
  EXPECT_EQ(
      refused.message,
      "the prompt has 60 tokens, but the KV cache of 48 tokens (48 pages of 1) must hold it and "
      "at least one token of the answer");
  EXPECT_EQ(refused.code, "context_length_exceeded");
}

TEST_P(OverlapTest, AnEndOfSequenceTokenCountsAndWinsOverTheCap) {
  HarnessOptions with_eos = options();
  with_eos.config.eos_ids = {50, 7};
  // Counts up: 1 -> 2, 2 -> 3, ...
  with_eos.model = [](std::span<const TokenId> history) { return (history.back() + 1) % 97; };
  Harness harness(with_eos);
  const RequestId stops = harness.submit({4}, {.max_tokens = 9});
  const RequestId both = harness.submit({4}, {.max_tokens = 3});
  const RequestId capped = harness.submit({4}, {.max_tokens = 2});
  const RequestId ignores = harness.submit({4}, {.max_tokens = 5, .ignore_eos = true});
  const RequestId own_stop =
      harness.submit({4}, {.max_tokens = 9, .ignore_eos = true, .stop_token_ids = {90, 8}});
  const RequestId at_once = harness.submit({6}, {.max_tokens = 9});
  harness.finish();
  const auto expect = [&](RequestId id, std::vector<TokenId> tokens, FinishReason finish) {
    EXPECT_EQ(harness.answers[id.value].tokens, tokens);
    EXPECT_EQ(harness.answers[id.value].finish, finish);
  };
  expect(stops, {5, 6, 7}, FinishReason::kStop);
  expect(both, {5, 6, 7}, FinishReason::kStop);
  expect(capped, {5, 6}, FinishReason::kLength);
  expect(ignores, {5, 6, 7, 8, 9}, FinishReason::kLength);
  expect(own_stop, {5, 6, 7, 8}, FinishReason::kStop);
  expect(at_once, {7}, FinishReason::kStop);
}

TEST_P(OverlapTest, DecodingGoesOnInEveryStepWhileALongPromptIsComputedBesideIt) {
  HarnessOptions chunked = options();
  chunked.config.prefill_budget_tokens = 16;
  chunked.num_pages = 1000;
  Harness harness(chunked);
  Random random(6);
  const RequestId running = harness.submit(draw_prompt(random, 8), {.max_tokens = 60});
  harness.step();
  harness.step();
  const RequestId prompt = harness.submit(draw_prompt(random, 200), {.max_tokens = 2});
  std::size_t tokens = harness.answers[running.value].tokens.size();
  for (int chunk = 0; chunk < 13; ++chunk) {  // ceil(200 / 16)
    harness.step();
    EXPECT_EQ(harness.answers[running.value].tokens.size(), ++tokens) << "chunk " << chunk;
  }
  EXPECT_EQ(harness.executor.num_mixed, 13);
  EXPECT_LE(harness.answers[prompt.value].tokens.size(), 1U);
  harness.finish();
  harness.expect_all_right();
}

TEST_P(OverlapTest, ASmallRequestDoesNotOvertakeALargeOneThatWaitsForPages) {
  HarnessOptions small = options();
  small.num_pages = 20;
  Harness harness(small);
  std::vector<std::uint64_t> order;
  harness.on_events = [&](std::span<const TokenEvent> events) {
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone) order.push_back(event.request.value);
  };
  Random random(7);
  harness.submit(draw_prompt(random, 5), {.max_tokens = 6});   // 10 pages
  harness.submit(draw_prompt(random, 12), {.max_tokens = 8});  // 19: waits for the first
  harness.submit(draw_prompt(random, 2), {.max_tokens = 1});   // 2: would fit beside the first
  harness.step();
  EXPECT_EQ(harness.scheduler.stats().running, 1);
  EXPECT_EQ(harness.scheduler.stats().waiting, 2);
  harness.finish();
  harness.expect_all_right();
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_P(OverlapTest, APromptBetweenItsChunksKeepsWhatIsReservedForIt) {
  for (const std::int64_t max_tokens : {6, 7}) {
    HarnessOptions chunked = options();
    chunked.config.prefill_budget_tokens = 16;
    chunked.num_pages = 40;
    Harness harness(chunked);
    Random random(10);
    harness.submit(draw_prompt(random, 20), {.max_tokens = 11});         // 30 pages
    harness.submit(draw_prompt(random, 5), {.max_tokens = max_tokens});  // 10 or 11
    harness.step();
    harness.step();  // the second has room in the budget of the first one's last chunk
    EXPECT_EQ(harness.scheduler.stats().running, max_tokens == 6 ? 2 : 1);
    harness.finish();
    harness.expect_all_right();
  }
}

TEST_P(OverlapTest, SeedsAreTheRequestsOwnOrDrawnFromTheEnginesAndPositionsCountTheAnswer) {
  HarnessOptions seeded = options();
  seeded.config.seed = 11;
  Harness harness(seeded);
  const RequestId own =
      harness.submit({1, 2, 3}, {.temperature = 0.5, .top_k = 5, .seed = 42, .max_tokens = 3});
  const RequestId drawn = harness.submit({1, 2}, {.temperature = 1, .max_tokens = 1});
  const RequestId other = harness.submit({1, 2}, {.temperature = 1, .top_k = 1, .max_tokens = 1});
  harness.finish();
  const auto& samples = harness.executor.samples;
  ASSERT_EQ(samples.at(own.value).size(), 3U);
  for (std::int64_t i = 0; i < 3; ++i) {
    const SampleRow& row = samples.at(own.value)[i];
    EXPECT_EQ(row.seed, 42U);
    EXPECT_EQ(row.position, i);
    EXPECT_EQ(row.temperature, 0.5F);
    EXPECT_EQ(row.top_k, 5);
  }
  EXPECT_NE(samples.at(drawn.value)[0].seed, samples.at(other.value)[0].seed);
  EXPECT_EQ(samples.at(other.value)[0].temperature, 0.0F) << "one candidate is greedy";
  Harness again(seeded);
  again.submit({1}, {.max_tokens = 1});
  const RequestId same = again.submit({1, 2}, {.temperature = 1, .max_tokens = 1});
  again.finish();
  EXPECT_EQ(again.executor.samples.at(same.value)[0].seed, samples.at(drawn.value)[0].seed);
}

TEST_P(OverlapTest, AFaultOfTheExecutorAnswersAllThatIsLiveAndLaterRequestsToo) {
  for (const bool at_launch : {false, true}) {
    Harness harness(options());
    (at_launch ? harness.executor.fail_at_launch : harness.executor.fail_at_collect) = 3;
    const std::string what = at_launch ? "launch failed" : "device lost";
    Random random(8);
    for (int i = 0; i < 3; ++i) harness.submit(draw_prompt(random, 6), {.max_tokens = 20});
    std::string thrown;
    try {
      harness.scheduler.run();
    } catch (const Error& e) {
      thrown = e.what();
    }
    EXPECT_EQ(thrown, what);
    const RequestId late = harness.submit(draw_prompt(random, 6), {});
    for (const auto& [id, answer] : harness.answers) {
      EXPECT_EQ(answer.finish, FinishReason::kError) << "request " << id;
      EXPECT_EQ(answer.error, what);
    }
    EXPECT_EQ(harness.answers.count(late.value), 1U);
    EXPECT_EQ(harness.scheduler.stats().running, 0);
    EXPECT_THROW(harness.scheduler.step(), Error);
  }
}

TEST_P(OverlapTest, StopEndsWhatIsLeftWithAnAbortAndAnswersLaterRequests) {
  Harness harness(options());
  Random random(9);
  const RequestId running = harness.submit(draw_prompt(random, 6), {.max_tokens = 50});
  for (int i = 0; i < 4; ++i) harness.step();
  const RequestId waiting = harness.submit(draw_prompt(random, 6), {.max_tokens = 50});
  harness.scheduler.stop();
  harness.scheduler.run();
  const RequestId late = harness.submit(draw_prompt(random, 6), {});
  for (const RequestId id : {running, waiting, late}) {
    EXPECT_EQ(harness.answers[id.value].finish, FinishReason::kAbort) << "request " << id.value;
    harness.expect_right(id);
  }
  EXPECT_GE(harness.answers[running.value].tokens.size(), 3U);
  harness.finish();
}

TEST_P(OverlapTest, ARequestThatTheReceiverOfAnAbortSubmitsInReturnIsAnsweredToo) {
  Harness harness(options());
  harness.submit({1, 2}, {.max_tokens = 50});
  harness.step();
  int retries = 3;
  harness.on_events = [&](std::span<const TokenEvent> events) {
    for (const TokenEvent& event : events) {
      if (event.finish == FinishReason::kAbort && retries-- > 0) harness.submit({1, 2}, {});
    }
  };
  harness.scheduler.stop();
  harness.scheduler.run();
  ASSERT_EQ(harness.answers.size(), 4U);
  for (const auto& [id, answer] : harness.answers) EXPECT_EQ(answer.finish, FinishReason::kAbort);
}

TEST(SchedulerTest, AnIdThatIsInUseIsRefusedAndMayComeBackAfterwards) {
  Harness harness({});
  const RequestId id = harness.submit({1, 2}, {.max_tokens = 3});
  try {
    harness.scheduler.submit({id, {1}, {}});
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("request id 1 is in use"), std::string::npos);
  }
  harness.finish();
  harness.answers.clear();
  harness.scheduler.submit({id, {1, 2}, {.max_tokens = 3}});
  harness.finish();
  harness.expect_right(id);
}

TEST(SchedulerTest, StatsCountTokensPagesAndRequests) {
  Harness harness({});
  harness.submit({1, 2, 3, 4}, {.max_tokens = 4});
  EXPECT_EQ(harness.scheduler.stats().waiting, 1) << "before the loop has seen it";
  harness.finish();
  harness.submit({1, 2, 3, 4, 5}, {.max_tokens = 4});
  harness.step();
  EXPECT_EQ(harness.scheduler.stats().running, 1);
  EXPECT_GE(harness.scheduler.stats().locked_pages, 4);
  harness.finish();
  const SchedulerStats stats = harness.scheduler.stats();
  EXPECT_EQ(stats.prompt_tokens, 9);
  EXPECT_EQ(stats.cached_prompt_tokens, 4);
  EXPECT_EQ(stats.generated_tokens, 8);
  EXPECT_EQ(stats.total_pages, 400);
  EXPECT_EQ(stats.steps, harness.executor.num_launched);
}

TEST(SchedulerTest, OptionsAndLimitsThatMakeNoSenseAreNamed) {
  const auto message = [](auto change) -> std::string {
    HarnessOptions options;
    change(options);
    try {
      const Harness harness(options);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message([](auto& o) {
              o.config.prefill_budget_tokens = 0;
            }).find("prefill_budget_tokens is 0; it must be at least 1"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.config.prefix_cache = "lru"; }).find("known are: naive, radix"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.num_pages = 0; }).find("0 pages of 1 tokens"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.max_seq_len = 1; }).find("max_seq_len is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace minisgl
