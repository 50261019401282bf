// Everything at once, at random, against a model that needs no cache and no scheduler.

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

using Parameters = std::tuple<int, int, bool, std::string>;  // page size, budget, overlap, cache

class SchedulerRandomTest : public testing::TestWithParam<Parameters> {};

TEST_P(SchedulerRandomTest, EveryAnswerIsTheModelsAndNoPageIsLost) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    HarnessOptions options;
    options.config.eos_ids = {0, 1, 2};  // of 40 ids: answers of some 13 tokens
    options.vocab_size = 40;
    std::tie(options.page_size, options.config.prefill_budget_tokens, options.config.overlap,
             options.config.prefix_cache) = GetParam();
    // Room for a few requests only, so that the queue waits and the cache is evicted.
    options.num_pages =
        static_cast<std::int32_t>(random.between(4, 8) * std::max(1, 100 / options.page_size));
    options.max_rows = static_cast<std::int32_t>(random.between(1, 12));
    options.max_seq_len = 160;
    options.seed = seed;
    Harness harness(options);
    std::vector<std::vector<TokenId>> prompts;
    std::uint64_t num_requests = 0;
    for (int action = 0; action < 120; ++action) {
      switch (random.below(4)) {
        case 0: {
          std::vector<TokenId> prompt;
          if (!prompts.empty() && random.below(3) > 0) {  // shares a beginning with an earlier one
            prompt = prompts[random.below(static_cast<std::int64_t>(prompts.size()))];
            prompt.resize(static_cast<std::size_t>(
                random.between(1, static_cast<std::int64_t>(prompt.size()))));
          }
          const std::vector<TokenId> more = draw_prompt(random, random.between(1, 70), 40);
          prompt.insert(prompt.end(), more.begin(), more.end());
          prompt.resize(std::min<std::size_t>(prompt.size(), 120));
          prompts.push_back(prompt);
          harness.submit(prompt,
                         {.max_tokens = random.between(0, 60), .ignore_eos = random.below(5) == 0});
          ++num_requests;
          break;
        }
        case 1:
          if (num_requests > 0 && random.below(3) == 0) {
            harness.scheduler.abort(RequestId{static_cast<std::uint64_t>(
                random.between(1, static_cast<std::int64_t>(num_requests)))});
          }
          break;
        default: harness.step();
      }
      if (HasFatalFailure()) return;
    }
    harness.finish();
    harness.expect_all_right();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SchedulerRandomTest,
                         testing::Combine(testing::Values(1, 4, 16, 256),
                                          testing::Values(8, 32, 8192), testing::Bool(),
                                          testing::Values("naive", "radix")),
                         [](const auto& info) {
                           return "page" + std::to_string(std::get<0>(info.param)) + "_budget" +
                                  std::to_string(std::get<1>(info.param)) +
                                  (std::get<2>(info.param) ? "_overlap_" : "_plain_") +
                                  std::get<3>(info.param);
                         });

}  // namespace
}  // namespace minisgl
