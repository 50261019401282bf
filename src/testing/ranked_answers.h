// The answers of a model divided over ranks, beside those of the same model whole.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "testing/ranked_run.h"

namespace minisgl::testing_util {

using Prompts = std::vector<std::vector<TokenId>>;

/// Tokens of each answer; the logits of all of them are kept.
constexpr std::size_t kRankedTokens = 24;

/// All prompts, side by side and then from the cache.
inline std::vector<Outcome> answers(ScheduledRun& run, const Prompts& prompts) {
  for (int turn = 0; turn < 2; ++turn) {
    for (const std::vector<TokenId>& prompt : prompts)
      run.submit(prompt, {.max_tokens = kRankedTokens, .ignore_eos = true});
    run.finish();
  }
  return run.outcomes();
}

/// Those of one rank.
inline std::vector<Outcome> answers(const std::filesystem::path& model, RunConfig config,
                                    const Prompts& prompts) {
  config.keep_logits = kRankedTokens;
  ScheduledRun whole(model, config);
  return answers(whole, prompts);
}

/// By how much the likeliest token is likelier than the next.
inline float margin(const std::vector<float>& logits) {
  float best = -std::numeric_limits<float>::infinity();
  float second = best;
  for (const float logit : logits) {
    second = std::max(second, std::min(best, logit));
    best = std::max(best, logit);
  }
  return best - second;
}

/// The same ids up to the first that was a near thing, and until then the same logits.
inline void expect_equal(const Outcome& ranked, const Outcome& whole) {
  ASSERT_EQ(ranked.finish, whole.finish) << ranked.error;
  ASSERT_EQ(whole.logits.size(), kRankedTokens);
  ASSERT_EQ(ranked.logits.size(), kRankedTokens);
  for (std::size_t at = 0; at < kRankedTokens; ++at) {
    for (std::size_t i = 0; i < whole.logits[at].size(); ++i)
      ASSERT_NEAR(ranked.logits[at][i], whole.logits[at][i], 1e-4)
          << "logit " << i << " of token " << at;
    if (margin(whole.logits[at]) < 2e-3) return;
    ASSERT_EQ(ranked.tokens[at], whole.tokens[at]) << "token " << at;
  }
}

/// That `ranks` ranks give the answers `whole` to `prompts`.
inline void expect_answers(const std::vector<Outcome>& whole, const std::filesystem::path& model,
                           int ranks, RunConfig config, const Prompts& prompts) {
  SCOPED_TRACE(describe(config));
  config.keep_logits = kRankedTokens;
  run_on_ranks(ranks, model, config, [&](ScheduledRun& run) {
    const std::vector<Outcome> actual = answers(run, prompts);
    ASSERT_EQ(actual.size(), whole.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      SCOPED_TRACE("prompt " + std::to_string(i));
      expect_equal(actual[i], whole[i]);
    }
  });
}

/// Of page size, prefix cache, graphs, overlap and chunked prompts every pair of values, in twelve
/// settings.
inline std::vector<RunConfig> settings_of_ranks() {
  std::vector<RunConfig> settings;
  const std::int32_t page_sizes[] = {1, 16, 64};
  for (const int graphs : {0, 1}) {
    for (const int naive : {0, 1}) {
      for (int page = 0; page < 3; ++page)
        settings.push_back({.page_size = page_sizes[page],
                            .prefill_budget = (page + naive) % 2 == 0 ? 256 : 23,
                            .cache = naive == 0 ? "radix" : "naive",
                            .attention = (page + graphs) % 2 == 0 ? "fa" : "fi",
                            .overlap = (page + naive + graphs) % 2 == 0,
                            .graph_max = graphs == 0 ? 0 : 8,
                            .check_graphs = graphs == 1});
    }
  }
  return settings;
}

}  // namespace minisgl::testing_util
