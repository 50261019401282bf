// A request's logits do not depend, bit for bit, on what it is computed with: the other requests,
// chunks, pages, prefix hits, overlap, threads, aborts around it.

#include <gtest/gtest.h>

#include <filesystem>

#include "testing/gpu.h"
#include "testing/random.h"
#include "testing/scheduled_run.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::Random;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

struct Work {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};

/// 24 requests of mixed lengths; some share prefixes, some are equal; greedy and sampled.
std::vector<Work> make_work(int vocab) {
  Random random(7);
  std::vector<Work> work;
  const auto ids = [&](std::int64_t count) {
    std::vector<TokenId> prompt;
    for (std::int64_t i = 0; i < count; ++i)
      prompt.push_back(static_cast<TokenId>(random.below(vocab)));
    return prompt;
  };
  const std::vector<TokenId> shared = ids(90);
  for (int i = 0; i < 24; ++i) {
    Work w;
    if (i % 3 == 0) {
      w.prompt.assign(shared.begin(), shared.begin() + random.between(1, 90));
      const std::vector<TokenId> tail = ids(random.between(1, 60));
      w.prompt.insert(w.prompt.end(), tail.begin(), tail.end());
    } else {
      w.prompt = ids(random.between(1, i % 5 == 0 ? 300 : 80));
    }
    if (i == 20) w.prompt = work[3].prompt;  // the same prompt again
    w.sampling.max_tokens = random.between(1, 24);
    w.sampling.ignore_eos = i % 2 == 0;
    if (i % 4 == 3) {
      w.sampling.temperature = 0.9;
      w.sampling.top_p = 0.95;
      w.sampling.seed = static_cast<std::uint64_t>(i);
    }
    work.push_back(std::move(w));
  }
  return work;
}

void expect_same(const Outcome& expected, const Outcome& actual, std::size_t i) {
  ASSERT_EQ(actual.error, "") << "request " << i;
  ASSERT_EQ(expected.tokens, actual.tokens) << "request " << i;
  ASSERT_EQ(expected.finish, actual.finish) << "request " << i;
  ASSERT_EQ(expected.logits_hash, actual.logits_hash) << "request " << i;
}

/// All at once, or some now and then between steps; a part is aborted at random moments and not
/// compared.
void run_together(const std::filesystem::path& model, const RunConfig& config,
                  const std::vector<Work>& work, const std::vector<Outcome>& alone, bool staggered,
                  std::uint64_t seed) {
  SCOPED_TRACE(testing_util::describe(config) + (staggered ? ", staggered" : ", together") +
               ", seed " + std::to_string(seed));
  Random random(seed);
  ScheduledRun run(model, config);
  std::vector<bool> aborted(work.size(), false);
  for (std::size_t i = 0; i < work.size(); ++i) {
    run.submit(work[i].prompt, work[i].sampling);
    const std::int64_t steps = staggered ? random.below(4) : 0;
    for (std::int64_t s = 0; s < steps; ++s) run.step();
    if (random.below(5) == 0) {
      const auto victim = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1));
      run.abort(victim);
      aborted[victim] = true;
    }
  }
  for (int s = 0; s < 3; ++s) {
    run.step();
    const auto victim =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(work.size())));
    run.abort(victim);
    aborted[victim] = true;
  }
  ASSERT_NO_THROW(run.finish());
  int compared = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const Outcome& outcome = run.outcomes()[i];
    ASSERT_NE(outcome.finish, FinishReason::kNone) << "request " << i << " was never answered";
    if (outcome.finish == FinishReason::kAbort) {
      ASSERT_TRUE(aborted[i]) << "request " << i;
      continue;
    }
    ++compared;
    expect_same(alone[i], outcome, i);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 8);
  const SchedulerStats stats = run.stats();
  EXPECT_EQ(stats.free_pages + stats.cached_pages, stats.total_pages);
  EXPECT_EQ(stats.locked_pages, 0);
}

std::vector<Outcome> run_alone(const std::filesystem::path& model, const std::vector<Work>& work,
                               const std::vector<TokenId>& eos_ids, Device device = kCpu) {
  std::vector<Outcome> outcomes;
  for (const Work& w : work) {
    ScheduledRun run(model, {.device = device,
                             .prefill_budget = 8192,
                             .cache = "naive",
                             .overlap = false,
                             .eos_ids = eos_ids,
                             .deterministic = true});
    run.submit(w.prompt, w.sampling);
    run.finish();
    outcomes.push_back(run.outcomes()[0]);
  }
  return outcomes;
}

/// Every 40th id ends an answer, so that ends by EOS are common.
std::vector<TokenId> common_eos_ids() {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 640; id += 40) ids.push_back(id);
  return ids;
}

class IndependenceTest : public testing::TestWithParam<std::string> {};

TEST_P(IndependenceTest, EveryWayToRunARequestGivesTheSameLogits) {
  const std::filesystem::path model = testing_util::tiny_model(GetParam());
  const std::vector<Work> work = make_work(600);
  const std::vector<TokenId> eos_ids = common_eos_ids();
  const std::vector<Outcome> alone = run_alone(model, work, eos_ids);
  std::uint64_t seed = 0;
  for (const std::int32_t page_size : {1, 16, 256})
    for (const std::int32_t budget : {32, 8192})
      for (const char* cache : {"radix", "naive"})
        for (const bool overlap : {true, false})
          for (const int threads : {1, 2}) {
            const RunConfig config{.threads = threads,
                                   .page_size = page_size,
                                   .num_pages = page_size == 256 ? 24 : 2048 / page_size,
                                   .prefill_budget = budget,
                                   .cache = cache,
                                   .overlap = overlap,
                                   .eos_ids = eos_ids};
            for (const bool staggered : {false, true}) {
              run_together(model, config, work, alone, staggered, ++seed);
              if (HasFatalFailure()) return;
            }
          }
}

class GpuIndependenceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = testing_util::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(GpuIndependenceTest, ADeterministicGpuGivesTheSameLogitsHoweverARequestIsRun) {
  const std::filesystem::path model = testing_util::tiny_model(GetParam());
  const std::vector<Work> work = make_work(600);
  const std::vector<TokenId> eos_ids = common_eos_ids();
  const std::vector<Outcome> alone = run_alone(model, work, eos_ids, kGpu);
  std::uint64_t seed = 0;
  for (const std::int32_t page_size : {1, 16, 256})
    for (const std::int32_t budget : {32, 8192})
      for (const bool overlap : {true, false})
        for (const bool staggered : {false, true}) {
          const RunConfig config{.device = kGpu,
                                 .page_size = page_size,
                                 .num_pages = page_size == 256 ? 24 : 2048 / page_size,
                                 .prefill_budget = budget,
                                 .cache = staggered ? "radix" : "naive",
                                 .overlap = overlap,
                                 .eos_ids = eos_ids,
                                 .deterministic = true};
          run_together(model, config, work, alone, staggered, ++seed);
          if (HasFatalFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuIndependenceTest,
                         testing::Values("llama", "qwen3", "qwen3_moe-mixed"));
INSTANTIATE_TEST_SUITE_P(Models, IndependenceTest,
                         testing::Values("llama", "qwen3", "qwen3_moe-mixed"));

}  // namespace
}  // namespace minisgl
