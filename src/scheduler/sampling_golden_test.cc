// Penalties, biases, masks and log-probabilities of real (tiny) models, against what a plain
// program makes of the logits, and the same whatever is computed beside them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "testing/golden.h"
#include "testing/random.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::Random;
using testing_util::RunConfig;
using testing_util::ScheduledRun;
using testing_util::tiny_model;

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Every second id, the odd ones first.
class ParityConstraint final : public TokenConstraint {
 public:
  bool fill(std::span<std::int32_t> mask) override {
    std::fill(mask.begin(), mask.end(),
              static_cast<std::int32_t>(even_ ? 0x55555555U : 0xAAAAAAAAU));
    return true;
  }
  bool accept(TokenId token) override {
    const bool fits = token % 2 == (even_ ? 0 : 1);
    even_ = !even_;
    return fits;
  }

 private:
  bool even_ = false;
};

struct Work {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  bool constrained = false;
};

/// Requests that ask for something each, and some that do not.
std::vector<Work> make_work(int count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Work> work;
  std::vector<TokenId> shared;
  for (int i = 0; i < 40; ++i) shared.push_back(static_cast<TokenId>(random.below(600)));
  for (int i = 0; i < count; ++i) {
    Work w;
    if (i % 3 == 0) w.prompt.assign(shared.begin(), shared.begin() + random.between(1, 40));
    for (std::int64_t k = random.between(1, 60); k > 0; --k)
      w.prompt.push_back(static_cast<TokenId>(random.below(600)));
    SamplingParams& s = w.sampling;
    s.max_tokens = random.between(1, 24);
    if (i % 2 == 0) s.presence_penalty = 0.5 + random.uniform();
    if (i % 3 == 1) s.frequency_penalty = random.uniform();
    if (i % 4 == 1) s.repetition_penalty = 1.3;
    if (i % 5 == 2)
      for (int k = 0; k < 8; ++k)
        s.logit_bias.push_back(
            {static_cast<std::int32_t>(random.below(70) * 8 + k), 20.0 * random.uniform()});
    if (i % 6 == 3) s.min_tokens = std::min<std::int64_t>(5, s.max_tokens);
    if (i % 2 == 1) s.num_logprobs = static_cast<int>(random.below(21));
    if (i % 7 == 5) s.prompt_logprobs = static_cast<int>(random.below(4));
    if (i % 3 == 2) {
      s.temperature = 0.9;
      s.top_p = 0.95;
      s.seed = static_cast<std::uint64_t>(i);
    }
    w.constrained = i % 8 == 6;
    work.push_back(std::move(w));
  }
  return work;
}

std::vector<TokenId> some_eos_ids() {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 640; id += 20) ids.push_back(id);
  return ids;
}

void submit(ScheduledRun& run, const Work& work) {
  run.submit(work.prompt, work.sampling,
             work.constrained ? std::make_unique<ParityConstraint>() : nullptr);
}

void expect_same(const Outcome& expected, const Outcome& actual) {
  ASSERT_EQ(actual.error, "");
  ASSERT_EQ(actual.tokens, expected.tokens);
  ASSERT_EQ(actual.finish, expected.finish);
  ASSERT_EQ(actual.logits_hash, expected.logits_hash);
  ASSERT_EQ(actual.logprobs, expected.logprobs);
  ASSERT_EQ(actual.prompt_logprobs, expected.prompt_logprobs);
}

class SamplingGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path folder_ = tiny_model(GetParam());
};

TEST_P(SamplingGoldenTest, ARequestGetsTheSameAloneAndAmongFifty) {
  const std::vector<Work> work = make_work(50, 21);
  std::vector<Outcome> alone;
  {
    // One after the other on one engine: nothing is beside them.
    ScheduledRun run(
        folder_,
        {.prefill_budget = 8192, .cache = "naive", .overlap = false, .eos_ids = some_eos_ids()});
    for (const Work& w : work) {
      submit(run, w);
      run.finish();
    }
    alone = run.outcomes();
  }
  const std::vector<RunConfig> configs = {{.eos_ids = some_eos_ids()},
                                          {.threads = 2,
                                           .page_size = 16,
                                           .prefill_budget = 32,
                                           .overlap = false,
                                           .eos_ids = some_eos_ids()},
                                          {.threads = 2,
                                           .page_size = 4,
                                           .prefill_budget = 48,
                                           .attention = "fi",
                                           .eos_ids = some_eos_ids(),
                                           .graph_max = 64,
                                           .check_graphs = true},
                                          {.page_size = 16,
                                           .prefill_budget = 17,
                                           .max_running = 9,
                                           .cache = "naive",
                                           .eos_ids = some_eos_ids(),
                                           .graph_max = 8}};
  for (const RunConfig& config : configs) {
    SCOPED_TRACE(testing_util::describe(config));
    Random random(9);
    ScheduledRun run(folder_, config);
    for (const Work& w : work) {
      submit(run, w);
      for (std::int64_t s = random.below(3); s > 0; --s) run.step();
    }
    run.finish();
    for (std::size_t i = 0; i < work.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      expect_same(alone[i], run.outcomes()[i]);
      if (HasFatalFailure()) return;
    }
    if (run.engine().graphs() != nullptr) {
      EXPECT_GT(run.engine().graphs()->stats().replays, 5);
    }
  }
}

/// The greedy token after `history`, from the model's logits, by the formulas of docs/sampling.md.
TokenId naive_greedy(const Work& work, const std::vector<TokenId>& answer,
                     const std::vector<float>& logits, const std::vector<TokenId>& eos_ids) {
  const SamplingParams& s = work.sampling;
  std::vector<float> x = logits;
  const auto is_in = [](const std::vector<TokenId>& ids, TokenId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (TokenId id = 0; id < static_cast<TokenId>(x.size()); ++id) {
    float& value = x[static_cast<std::size_t>(id)];
    for (const LogitBias& bias : s.logit_bias)
      if (bias.token == id) value += static_cast<float>(bias.bias);
    if (static_cast<std::int64_t>(answer.size()) < s.min_tokens && is_in(eos_ids, id))
      value = static_cast<float>(kNever);
    const auto repetition = static_cast<float>(s.repetition_penalty);
    if (is_in(work.prompt, id) || is_in(answer, id))
      value = value > 0 ? value / repetition : value * repetition;
    value -= static_cast<float>(s.frequency_penalty) *
             static_cast<float>(std::count(answer.begin(), answer.end(), id));
    if (is_in(answer, id)) value -= static_cast<float>(s.presence_penalty);
    if (work.constrained && id % 2 == static_cast<int>(answer.size() % 2))
      value = static_cast<float>(kNever);
  }
  return static_cast<TokenId>(std::max_element(x.begin(), x.end()) - x.begin());
}

TEST_P(SamplingGoldenTest, GreedyAnswersAreThoseThatThePlainFormulasGive) {
  std::vector<Work> work = make_work(40, 5);
  for (Work& w : work) {
    w.sampling.temperature = 0;
    w.sampling.num_logprobs = 5;
  }
  ScheduledRun run(folder_,
                   {.threads = 2, .page_size = 16, .eos_ids = some_eos_ids(), .keep_logits = 64});
  for (const Work& w : work) submit(run, w);
  run.finish();
  int changed = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const Outcome& outcome = run.outcomes()[i];
    ASSERT_EQ(outcome.error, "");
    ASSERT_EQ(outcome.logprobs.size(), outcome.tokens.size());
    std::vector<TokenId> answer;
    for (std::size_t k = 0; k < outcome.tokens.size(); ++k) {
      const std::vector<float>& logits = outcome.logits[k];
      ASSERT_EQ(outcome.tokens[k], naive_greedy(work[i], answer, logits, some_eos_ids()));
      answer.push_back(outcome.tokens[k]);
      // Log-probabilities are of the logits as the model made them.
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const auto logprob = [&](TokenId id) { return logits[id] - std::log(sum); };
      const PositionLogprobs& position = outcome.logprobs[k];
      EXPECT_EQ(position.chosen.token, outcome.tokens[k]);
      EXPECT_NEAR(position.chosen.logprob, logprob(outcome.tokens[k]), 1e-5);
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(position.top.size(), 5U);
      EXPECT_EQ(position.top[0].token, best);
      for (const TokenLogprob& entry : position.top)
        EXPECT_NEAR(entry.logprob, logprob(entry.token), 1e-5);
      changed += best != outcome.tokens[k] ? 1 : 0;
    }
  }
  EXPECT_GT(changed, 20) << "penalties, biases and masks changed hardly anything";
}

TEST_P(SamplingGoldenTest, PromptsHaveTheLogProbabilitiesOfTransformers) {
  const nlohmann::json golden = testing_util::read_json(folder_ / "golden.json");
  for (const std::int32_t budget : {7, 8192}) {
    ScheduledRun run(folder_, {.threads = 2, .page_size = 16, .prefill_budget = budget});
    for (int round = 0; round < 2; ++round) {  // the second time they are in the cache
      for (const auto& prompt : golden["prompts"])
        run.submit(prompt["ids"], {.max_tokens = round, .num_logprobs = 3, .prompt_logprobs = 2});
      run.finish();
    }
    std::size_t i = 0;
    for (int round = 0; round < 2; ++round)
      for (const auto& prompt : golden["prompts"]) {
        const Outcome& outcome = run.outcomes()[i++];
        const std::vector<double> expected = prompt["token_logprobs"];
        ASSERT_EQ(outcome.error, "");
        EXPECT_EQ(outcome.cached_tokens, 0);
        EXPECT_EQ(outcome.tokens.size(), static_cast<std::size_t>(round));
        ASSERT_EQ(outcome.prompt_logprobs.size(), expected.size());
        for (std::size_t k = 0; k < expected.size(); ++k) {
          EXPECT_NEAR(outcome.prompt_logprobs[k].chosen.logprob, expected[k], 2e-4);
          EXPECT_EQ(outcome.prompt_logprobs[k].top.size(), 2U);
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SamplingGoldenTest,
                         testing::Values("llama", "qwen3", "qwen3_moe-mixed"));

}  // namespace
}  // namespace minisgl
