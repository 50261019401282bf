// Failures that other engines had (design cases KV, ABT, OVL, CHK), each as a test.

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "testing/scheduler_harness.h"

namespace minisgl {
namespace {

using testing_util::draw_prompt;
using testing_util::Harness;
using testing_util::HarnessOptions;
using testing_util::Random;

class CasesTest : public testing::TestWithParam<std::tuple<bool, std::string>> {
 protected:
  static HarnessOptions options() {
    HarnessOptions options;
    std::tie(options.config.overlap, options.config.prefix_cache) = GetParam();
    return options;
  }
  static bool is_radix() { return std::get<1>(GetParam()) == "radix"; }
};

INSTANTIATE_TEST_SUITE_P(Modes, CasesTest,
                         testing::Combine(testing::Bool(), testing::Values("naive", "radix")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Overlap" : "Plain") + "_" +
                                  std::get<1>(info.param);
                         });

TEST_P(CasesTest, Kv1TwinsPrefilledTogetherShareThePagesOfTheTreeAndGoOnRight) {
  Harness harness(options());
  Random random(1);
  const std::vector<TokenId> prompt = draw_prompt(random, 100);
  harness.submit(prompt, {.max_tokens = 60});
  harness.submit(prompt, {.max_tokens = 60});
  for (int i = 0; i < 5; ++i) harness.step();
  // Whoever gets the duplicate's pages now overwrites them.
  for (int i = 0; i < 3; ++i) harness.submit(draw_prompt(random, 80), {.max_tokens = 60});
  harness.finish();
  harness.expect_all_right();
}

TEST_P(CasesTest, Kv2TheSamePromptAgainReusesAllWholePagesButComputesAToken) {
  for (const int page_size : {1, 16, 64}) {
    for (const int length : {1, page_size - 1, page_size, page_size + 1, 3 * page_size - 1,
                             3 * page_size, 3 * page_size + 1}) {
      if (length < 1) continue;
      SCOPED_TRACE("page " + std::to_string(page_size) + ", prompt " + std::to_string(length));
      HarnessOptions paged = options();
      paged.page_size = page_size;
      paged.num_pages = 64;
      Harness harness(paged);
      Random random(static_cast<std::uint64_t>(length));
      std::vector<TokenId> prompt = draw_prompt(random, length);
      RequestId last{};
      for (int turn = 0; turn < 3; ++turn) {
        last = harness.submit(prompt, {.max_tokens = 16});
        harness.finish();
        const int reused = turn == 0 || !is_radix() ? 0 : (length - 1) / page_size * page_size;
        EXPECT_EQ(harness.answers[last.value].cached_tokens, reused) << "turn " << turn;
      }
      const RequestId prefix =
          harness.submit({prompt.begin(), prompt.begin() + (length + 1) / 2}, {.max_tokens = 16});
      const std::vector<TokenId> answer = harness.answers[last.value].tokens;
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      const std::vector<TokenId> more = draw_prompt(random, 9);
      prompt.insert(prompt.end(), more.begin(), more.end());
      const RequestId second_turn = harness.submit(prompt, {.max_tokens = 16});
      harness.finish();
      harness.expect_all_right();
      if (is_radix()) {  // all but the last token of the first turn's answer has keys and values
        EXPECT_GE(harness.answers[second_turn.value].cached_tokens,
                  (length + 15) / page_size * page_size);
      }
      EXPECT_LT(harness.answers[prefix.value].cached_tokens, (length + 1) / 2);
    }
  }
}

TEST_P(CasesTest, Kv4ABurstOfOnePromptHitsOnlyWhatEarlierStepsComputed) {
  HarnessOptions chunked = options();
  chunked.config.prefill_budget_tokens = 64;
  chunked.num_pages = 4000;
  chunked.max_seq_len = 400;
  Harness harness(chunked);
  Random random(2);
  const std::vector<TokenId> prompt = draw_prompt(random, 300);
  for (int i = 0; i < 8; ++i) harness.submit(prompt, {.max_tokens = 8});
  std::int64_t computed = 0;
  while (harness.step()) {
    computed += 64;
    for (const auto& [id, answer] : harness.answers) EXPECT_LE(answer.cached_tokens, computed);
  }
  harness.finish();
  harness.expect_all_right();
  EXPECT_EQ(harness.answers[1].cached_tokens, 0);
  // The second came into the step of the first one's last chunk: that one's earlier chunks were
  // there.
  const int chunks = harness.answers[2].cached_tokens / 64;
  EXPECT_EQ(harness.answers[2].cached_tokens, chunks * 64);
  EXPECT_EQ(chunks, !is_radix() ? 0 : std::get<0>(GetParam()) ? 3 : 4);
  EXPECT_EQ(harness.answers[8].cached_tokens, is_radix() ? 299 : 0);
}

TEST_P(CasesTest, Kv4EvictedPromptsAreNotFoundAnyMore) {
  HarnessOptions small = options();
  small.num_pages = 440;  // two prompts with their answers
  Harness harness(small);
  Random random(3);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 6; ++i) prompts.push_back(draw_prompt(random, 200));
  for (int turn = 0; turn < 2; ++turn) {
    for (const auto& prompt : prompts) {
      const RequestId id = harness.submit(prompt, {.max_tokens = 16});
      harness.finish();
      EXPECT_EQ(harness.answers[id.value].cached_tokens, 0);
    }
  }
  const RequestId again = harness.submit(prompts.back(), {.max_tokens = 16});
  harness.finish();
  EXPECT_EQ(harness.answers[again.value].cached_tokens, is_radix() ? 199 : 0);
  harness.expect_all_right();
}

TEST_P(CasesTest, Abt1AbortsInEveryStateGiveAllRowsAndPagesBack) {
  HarnessOptions one_row = options();
  one_row.max_rows = 1;
  Harness harness(one_row);
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    const RequestId running =
        harness.submit(draw_prompt(random, 20), {.max_tokens = 200, .ignore_eos = true});
    const RequestId queued =
        harness.submit(draw_prompt(random, 20), {.max_tokens = 200, .ignore_eos = true});
    for (int k = 0; k < i % 5; ++k) harness.step();
    harness.scheduler.abort(queued);
    harness.scheduler.abort(running);
    harness.scheduler.abort(running);  // ended or unknown: nothing
    harness.scheduler.abort(RequestId{999999});
    harness.step();
    EXPECT_EQ(harness.scheduler.stats().running, 0);
    EXPECT_EQ(harness.scheduler.stats().waiting, 0);
    harness.finish();
    EXPECT_EQ(harness.answers[running.value].finish, FinishReason::kAbort);
    EXPECT_EQ(harness.answers[queued.value].finish, FinishReason::kAbort);
  }
  harness.expect_all_right();
}

TEST_P(CasesTest, Abt2AnAbortBetweenChunksOrInFlightReleasesOnceAndDisturbsNobody) {
  // Steps before the abort: 0 waiting, 1 to 13 between chunks of 32, then prefilled and decoding.
  for (int steps = 0; steps <= 20; ++steps) {
    SCOPED_TRACE("abort after step " + std::to_string(steps));
    HarnessOptions chunked = options();
    chunked.config.prefill_budget_tokens = 32;
    chunked.max_seq_len = 600;
    chunked.num_pages = 500;  // the followers need the pages of the aborted one
    chunked.seed = static_cast<std::uint64_t>(steps);
    Harness harness(chunked);
    Random random(5);
    const RequestId aborted = harness.submit(draw_prompt(random, 400), {.max_tokens = 50});
    for (int i = 0; i < steps; ++i) harness.step();
    harness.scheduler.abort(aborted);
    const RequestId first = harness.submit(draw_prompt(random, 200), {.max_tokens = 40});
    const RequestId second = harness.submit(draw_prompt(random, 200), {.max_tokens = 40});
    harness.finish();
    EXPECT_EQ(harness.answers[aborted.value].finish, FinishReason::kAbort);
    harness.expect_right(aborted);
    harness.expect_right(first);
    harness.expect_right(second);
  }
}

// PARITY A24 3.
TEST_P(CasesTest, Abt2AnAbortInTheStepOfTheLastTokenReleasesOnce) {
  for (const bool by_eos : {false, true}) {
    for (int steps = 1; steps <= 8; ++steps) {
      SCOPED_TRACE("abort after step " + std::to_string(steps));
      HarnessOptions counting = options();
      counting.config.eos_ids = {10};
      counting.model = [](std::span<const TokenId> history) { return (history.back() + 1) % 97; };
      counting.seed = static_cast<std::uint64_t>(steps);
      Harness harness(counting);
      // The fifth token is the last: 10 is end-of-sequence, or five are asked for.
      const RequestId id = harness.submit({2, by_eos ? 5 : 20}, {.max_tokens = by_eos ? 50 : 5});
      for (int i = 0; i < steps; ++i) harness.step();
      harness.scheduler.abort(id);
      const RequestId next = harness.submit({3, 30}, {.max_tokens = 5});
      const RequestId last = harness.submit({4, 40}, {.max_tokens = 5});
      harness.finish();
      harness.expect_right(id);
      harness.expect_right(next);
      harness.expect_right(last);
    }
  }
}

// PARITY A24 2: what is computed after the end is nobody's business.
TEST_P(CasesTest, Ovl1RequestsThatEndByEosAfterOneToFiftyTokensEndExactlyThere) {
  HarnessOptions counting = options();
  counting.num_pages = 4000;
  counting.config.eos_ids = {90};
  counting.model = [](std::span<const TokenId> history) { return (history.back() + 1) % 97; };
  Harness harness(counting);
  for (int count = 1; count <= 50; ++count)
    harness.submit({count, 90 - count}, {.max_tokens = 200});
  harness.submit({1, 2}, {.max_tokens = 1});
  harness.finish();
  harness.expect_all_right();
  for (std::uint64_t id = 1; id <= 50; ++id) {
    EXPECT_EQ(harness.answers[id].tokens.size(), id);
    EXPECT_EQ(harness.answers[id].finish, FinishReason::kStop);
  }
  EXPECT_EQ(harness.answers[51].tokens.size(), 1U);
  EXPECT_EQ(harness.answers[51].finish, FinishReason::kLength);
  EXPECT_EQ(harness.scheduler.stats().generated_tokens, 50 * 51 / 2 + 1);
}

TEST_P(CasesTest, Ovl2ManyRequestsAtOnceAndStaggeredGetTheirOwnFirstTokens) {
  for (const bool staggered : {false, true}) {
    HarnessOptions chunked = options();
    chunked.config.prefill_budget_tokens = 128;
    chunked.num_pages = 6000;
    chunked.max_seq_len = 400;
    Harness harness(chunked);
    Random random(6);
    for (int i = 0; i < 64; ++i) {
      harness.submit(draw_prompt(random, random.between(5, 300)), {.max_tokens = 12});
      if (staggered) harness.step();
    }
    harness.finish();
    harness.expect_all_right();
    EXPECT_GT(harness.executor.num_mixed, 10);
  }
}

TEST_P(CasesTest, Chk1ChunkBordersChangeNothingAndTheFirstTokenComesAfterTheWholePrompt) {
  const std::vector<int> lengths = {1, 31, 32, 33, 63, 64, 65, 96, 97};
  for (std::size_t only = 0; only <= lengths.size(); ++only) {  // each alone, then all together
    HarnessOptions chunked = options();
    chunked.config.prefill_budget_tokens = 32;
    chunked.num_pages = 2000;
    Harness harness(chunked);
    Random random(7);
    for (int i = 0; i < 2; ++i) harness.submit(draw_prompt(random, 10), {.max_tokens = 40});
    for (int i = 0; i < 3; ++i) harness.step();
    std::int64_t tokens = 0;
    RequestId last{};
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (only < lengths.size() && i != only) continue;
      last = harness.submit(draw_prompt(random, lengths[i]), {.max_tokens = 8});
      tokens += lengths[i];
    }
    const std::int64_t steps_before = harness.executor.num_launched;
    while (harness.answers[last.value].tokens.empty()) ASSERT_TRUE(harness.step());
    EXPECT_GE(harness.executor.num_collected - steps_before, tokens / 32);
    harness.finish();
    harness.expect_all_right();
    EXPECT_EQ(harness.answers[last.value].tokens.size(), 8U);
  }
}

// PARITY A24 1: two ranks that see the same messages launch the same batches, whatever their memory
// looks like.
TEST_P(CasesTest, TwoRanksWithTheSameMessagesLaunchTheSameBatchesInTheSameOrder) {
  std::string logs[2];
  std::vector<std::unique_ptr<std::vector<char>>> clutter;
  for (std::string& log : logs) {
    HarnessOptions chunked = options();
    chunked.config.prefill_budget_tokens = 24;
    chunked.num_pages = 60;
    chunked.page_size = 4;
    chunked.max_rows = 6;
    chunked.config.eos_ids = {0};
    chunked.config.seed = 1;
    chunked.seed = clutter.size() + 1;  // other delays of the device, too
    Harness harness(chunked);
    harness.executor.log = &log;
    Random random(8);
    for (int i = 0; i < 60; ++i) {
      harness.submit(draw_prompt(random, random.between(1, 60), 3),
                     {.max_tokens = random.between(1, 40)});
      if (&log == &logs[1]) clutter.push_back(std::make_unique<std::vector<char>>(100 + i * 37));
      if (i % 7 == 3)
        harness.scheduler.abort(RequestId{static_cast<std::uint64_t>(random.between(1, i + 1))});
      for (auto k = random.below(3); k > 0; --k) harness.step();
    }
    harness.finish();
    harness.expect_all_right();
    clutter.push_back(std::make_unique<std::vector<char>>(1 << 16));
  }
  EXPECT_EQ(logs[0], logs[1]);
  EXPECT_GT(logs[0].size(), 1000U);
}

}  // namespace
}  // namespace minisgl
