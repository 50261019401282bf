// Requests that ask more of the sampler than a draw, on an executor without a model.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "testing/random.h"
#include "testing/scheduler_harness.h"

namespace minisgl {
namespace {

using testing_util::Answer;
using testing_util::draw_prompt;
using testing_util::Harness;
using testing_util::HarnessOptions;
using testing_util::hashing_model;
using testing_util::Random;

constexpr TokenId kVocab = 97;

/// Allows the ids that leave `remainder` when divided by `divisor`, another remainder after each
/// token; ends after `length` tokens.
class DividingConstraint final : public TokenConstraint {
 public:
  DividingConstraint(TokenId divisor, std::int64_t length) : divisor_(divisor), length_(length) {}

  bool fill(std::span<std::int32_t> mask) override {
    EXPECT_EQ(mask.size(), static_cast<std::size_t>((kVocab + 31) / 32));
    EXPECT_TRUE(std::all_of(mask.begin(), mask.end(), [](std::int32_t word) { return word == 0; }));
    EXPECT_EQ(filled_, accepted_) << "fill() and accept() take turns";
    ++filled_;
    if (divisor_ == 1) return false;
    for (TokenId id = 0; id < kVocab; ++id)
      if (allows(id)) mask[static_cast<std::size_t>(id / 32)] |= std::int32_t(1U << (id % 32));
    return true;
  }
  bool accept(TokenId token) override {
    const bool fits = allows(token);
    ++accepted_;
    return fits;
  }
  bool finished() const override { return accepted_ >= length_; }

  bool allows(TokenId id) const { return id % divisor_ == accepted_ % divisor_; }

 private:
  TokenId divisor_;
  std::int64_t length_;
  std::int64_t filled_ = 0, accepted_ = 0;
};

/// What a request with a DividingConstraint gets: the model's token, or the first allowed after it.
std::vector<TokenId> divided(const std::vector<TokenId>& prompt, TokenId divisor,
                             std::int64_t length) {
  DividingConstraint constraint(divisor, length);
  std::vector<TokenId> history = prompt;
  while (!constraint.finished()) {
    TokenId token = hashing_model(kVocab)(history);
    while (!constraint.allows(token)) token = (token + 1) % kVocab;
    history.push_back(token);
    constraint.accept(token);
  }
  return {history.begin() + static_cast<std::ptrdiff_t>(prompt.size()), history.end()};
}

TEST(SchedulerSamplingTest, PenaltiesCountWhatWasDrawnThoughStepsOverlap) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    HarnessOptions options;
    options.config.overlap = seed % 4 != 3;
    options.config.prefill_budget_tokens = seed % 2 == 0 ? 8 : 64;
    options.seed = seed;
    Harness h(options);
    Random random(seed);
    for (int i = 0; i < 30; ++i) {
      SamplingParams sampling{.max_tokens = random.between(1, 30)};
      if (random.below(2) == 0) sampling.frequency_penalty = 0.5;
      if (random.below(3) == 0) sampling.repetition_penalty = 1.5;
      if (random.below(3) == 0) sampling.logit_bias = {{3, 1}, {50, -2}};
      h.submit(draw_prompt(random, random.between(1, 30)), sampling);
      for (std::int64_t s = random.below(3); s > 0; --s) h.step();
    }
    h.finish();  // the executor verifies the counts
    h.expect_all_right();
    EXPECT_GT(h.executor.num_waited, 0);
  }
}

TEST(SchedulerSamplingTest, StepsWithoutPenaltiesAndFormatsDoNotWait) {
  Harness h({});
  Random random(1);
  for (int i = 0; i < 10; ++i)
    h.submit(draw_prompt(random, 5), {.logit_bias = {{3, 1}}, .max_tokens = 8, .num_logprobs = 2});
  h.finish();
  h.expect_all_right();
  EXPECT_EQ(h.executor.num_waited, 0);
}

TEST(SchedulerSamplingTest, AConstraintSeesEveryTokenBeforeItIsAskedForTheNext) {
  for (const bool overlap : {true, false}) {
    HarnessOptions options;
    options.config.overlap = overlap;
    options.config.prefill_budget_tokens = 16;
    Harness h(options);
    Random random(4);
    std::vector<std::pair<std::vector<TokenId>, std::int64_t>> constrained;
    for (int i = 0; i < 24; ++i) {
      const std::vector<TokenId> prompt = draw_prompt(random, random.between(1, 40));
      const std::int64_t length = random.between(1, 20);
      constrained.emplace_back(prompt, length);
      const TokenId divisor = i % 4 + 1;
      h.submit(prompt, {.max_tokens = 100}, std::make_unique<DividingConstraint>(divisor, length));
      h.submit(draw_prompt(random, random.between(1, 40)), {.max_tokens = random.between(1, 20)});
      for (std::int64_t s = random.below(3); s > 0; --s) h.step();
    }
    h.finish();
    for (std::uint64_t i = 0; i < 24; ++i) {
      const Answer& answer = h.answers[2 * i + 1];
      EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.error;
      EXPECT_EQ(answer.tokens, divided(constrained[i].first, static_cast<TokenId>(i % 4 + 1),
                                       constrained[i].second));
      h.expect_right(RequestId{2 * i + 2});
    }
  }
}

/// Allows `good` tokens, then none.
class StuckConstraint final : public TokenConstraint {
 public:
  explicit StuckConstraint(int good) : good_(good) {}
  bool fill(std::span<std::int32_t> mask) override {
    if (good_-- > 0) mask[0] = -1;
    return true;
  }
  bool accept(TokenId /*token*/) override { return true; }

 private:
  int good_;
};

TEST(SchedulerSamplingTest, AConstraintThatLeavesNothingEndsItsRequestAlone) {
  for (const int good : {0, 1, 5})
    for (const bool overlap : {true, false}) {
      HarnessOptions options;
      options.config.overlap = overlap;
      Harness h(options);
      const RequestId stuck =
          h.submit({1, 2, 3}, {.max_tokens = 30}, std::make_unique<StuckConstraint>(good));
      const RequestId other = h.submit({4, 5}, {.max_tokens = 30});
      h.finish();
      EXPECT_EQ(h.answers[stuck.value].finish, FinishReason::kError);
      EXPECT_EQ(h.answers[stuck.value].error,
                "no token can follow: the response format and the other sampling parameters leave "
                "none");
      EXPECT_EQ(h.answers[stuck.value].tokens.size(), static_cast<std::size_t>(good));
      h.expect_right(other);
    }
}

/// Masks nothing and refuses the third token.
class RefusingConstraint final : public TokenConstraint {
 public:
  bool fill(std::span<std::int32_t> /*mask*/) override { return false; }
  bool accept(TokenId /*token*/) override { return ++count_ < 3; }

 private:
  int count_ = 0;
};

TEST(SchedulerSamplingTest, ATokenThatDoesNotFitEndsItsRequestWithAnError) {
  Harness h({});
  const RequestId bad =
      h.submit({1, 2, 3}, {.max_tokens = 30}, std::make_unique<RefusingConstraint>());
  const RequestId other = h.submit({4, 5}, {.max_tokens = 30});
  h.finish();
  EXPECT_EQ(h.answers[bad.value].finish, FinishReason::kError);
  EXPECT_EQ(h.answers[bad.value].error,
            "the token that was drawn does not fit the response format; min_tokens or a logit_bias "
            "may have left no other");
  EXPECT_EQ(h.answers[bad.value].tokens.size(), 2U);
  h.expect_right(other);
}

TEST(SchedulerSamplingTest, AFormatWithoutAConstraintIsRefused) {
  Harness h({});
  SamplingParams sampling;
  sampling.response_format.kind = ResponseFormat::Kind::kJsonObject;
  const RequestId id = h.submit({1, 2}, sampling);
  h.finish();
  EXPECT_EQ(h.answers[id.value].error,
            "response_format is not supported here other than \"text\"; leave it out");
}

TEST(SchedulerSamplingTest, ABiasOfATokenThatIsNotThereIsRefused) {
  Harness h({});
  const RequestId id = h.submit({1, 2}, {.logit_bias = {{kVocab, 1}}});
  h.finish();
  EXPECT_EQ(h.answers[id.value].error,
            "logit_bias names token 97; the vocabulary has ids from 0 to 96");
}

TEST(SchedulerSamplingTest, NoAnswerEndsBeforeItsShortestLength) {
  HarnessOptions options;
  for (TokenId id = 0; id < kVocab; id += 3) options.config.eos_ids.push_back(id);
  Harness h(options);
  Random random(8);
  std::map<std::uint64_t, std::int64_t> shortest;
  for (int i = 0; i < 20; ++i) {
    const std::int64_t min = random.below(12);
    SamplingParams sampling{.max_tokens = 60, .min_tokens = min, .stop_token_ids = {7, 8}};
    shortest[h.submit(draw_prompt(random, 6), sampling).value] = min;
  }
  h.finish();
  for (const auto& [id, min] : shortest) {
    const Answer& answer = h.answers[id];
    EXPECT_EQ(answer.finish, FinishReason::kStop);
    EXPECT_GT(static_cast<std::int64_t>(answer.tokens.size()), min);
    for (std::int64_t k = 0; k < min; ++k) {
      EXPECT_NE(answer.tokens[k] % 3, 0);
      EXPECT_NE(answer.tokens[k], 7);
    }
  }
}

TEST(SchedulerSamplingTest, EveryTokenBringsItsLogProbabilities) {
  Harness h({});
  Random random(2);
  for (int i = 0; i < 12; ++i) {
    SamplingParams sampling{.max_tokens = random.between(1, 12)};
    if (i % 3 != 0) sampling.num_logprobs = i;
    h.submit(draw_prompt(random, 4), sampling);
  }
  h.finish();
  h.expect_all_right();
  for (std::uint64_t id = 1; id <= 12; ++id) {
    const Answer& answer = h.answers[id];
    if ((id - 1) % 3 == 0) {
      EXPECT_TRUE(answer.logprobs.empty());
      continue;
    }
    ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
    for (std::size_t k = 0; k < answer.tokens.size(); ++k) {
      EXPECT_EQ(answer.logprobs[k].chosen.token, answer.tokens[k]);
      EXPECT_EQ(answer.logprobs[k].chosen.logprob, -static_cast<float>(answer.tokens[k]));
      EXPECT_EQ(answer.logprobs[k].top.size(), id - 1);
    }
  }
}

TEST(SchedulerSamplingTest, APromptIsScoredWholeInChunksAndAlthoughItIsCached) {
  HarnessOptions options;
  options.config.prefill_budget_tokens = 8;
  Harness h(options);
  Random random(6);
  const std::vector<TokenId> prompt = draw_prompt(random, 37);
  h.submit(prompt, {.max_tokens = 3});
  h.finish();
  const RequestId warm = h.submit(prompt, {.max_tokens = 3});
  const RequestId scored = h.submit(prompt, {.max_tokens = 3, .prompt_logprobs = 2});
  const RequestId only = h.submit(prompt, {.max_tokens = 0, .prompt_logprobs = 0});
  const RequestId one = h.submit({5}, {.max_tokens = 2, .prompt_logprobs = 1});
  h.finish();
  h.expect_all_right();
  EXPECT_GT(h.answers[warm.value].cached_tokens, 0);
  EXPECT_TRUE(h.answers[warm.value].prompt_logprobs.empty());
  EXPECT_TRUE(h.answers[one.value].prompt_logprobs.empty());
  for (const RequestId id : {scored, only}) {
    const Answer& answer = h.answers[id.value];
    EXPECT_EQ(answer.cached_tokens, 0);
    ASSERT_EQ(answer.prompt_logprobs.size(), prompt.size() - 1);
    for (std::size_t k = 0; k + 1 < prompt.size(); ++k) {
      EXPECT_EQ(answer.prompt_logprobs[k].chosen.token, prompt[k + 1]);
      EXPECT_EQ(answer.prompt_logprobs[k].chosen.logprob,
                -static_cast<float>(prompt[k + 1]) - 0.5F);
      EXPECT_EQ(answer.prompt_logprobs[k].top.size(), id == scored ? 2U : 0U);
    }
  }
  EXPECT_TRUE(h.answers[only.value].tokens.empty());
  EXPECT_EQ(h.answers[only.value].finish, FinishReason::kLength);
}

TEST(SchedulerSamplingTest, CountersSayWhatHappened) {
  HarnessOptions options;
  options.config.prefill_budget_tokens = 16;
  Harness h(options);
  h.submit({1, 2, 3}, {.max_tokens = 4});
  h.submit({}, {.max_tokens = 4});
  h.submit({1}, {.max_tokens = 0});
  h.finish();
  const RequestId id = h.submit({4, 5}, {.max_tokens = 50});
  h.step();
  h.step();
  h.scheduler.abort(id);
  h.finish();
  const SchedulerStats stats = h.scheduler.stats();
  EXPECT_EQ(stats.length_reached, 2);
  EXPECT_EQ(stats.failed, 1);
  EXPECT_EQ(stats.aborted, 1);
  EXPECT_EQ(stats.admitted, 2);
  EXPECT_EQ(stats.prefill_steps, 2);
  EXPECT_EQ(stats.steps, stats.prefill_steps + stats.decode_steps);
  EXPECT_EQ(stats.steps_by_rows[0], stats.steps);
  EXPECT_GE(stats.queue_seconds, 0);
}

}  // namespace
}  // namespace minisgl
