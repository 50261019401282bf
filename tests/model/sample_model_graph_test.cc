// The sample model's decode steps from (emulated) graphs, with every attention backend.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sample_model.h"
#include "testing/count_allocations.h"
#include "testing/golden.h"

namespace minisgl {
namespace {

using testing_util::RunConfig;
using testing_util::ScheduledRun;

/// The parameter is a backend.
class SampleModelGraphTest : public testing::TestWithParam<std::string> {
 protected:
  /// Whose first `limit` greedy tokens are asked for.
  struct Wanted {
    std::string prompt;
    std::size_t limit;
  };

  static std::vector<std::pair<std::string, const void*>> addresses(const GraphRunner& graphs) {
    std::vector<std::pair<std::string, const void*>> all;
    for (const std::int32_t size : graphs.batch_sizes())
      for (const CapturedBuffer& buffer : graphs.captured_buffers(size))
        all.emplace_back(buffer.name, buffer.view.data);
    return all;
  }
};

TEST_P(SampleModelGraphTest, AHundredReplaysGiveTheGoldenTokensAllocateNothingAndMoveNoBuffer) {
  const nlohmann::json golden = testing_util::read_json(sample_model_data() / "golden.json");
  std::int64_t decode_steps = 0, other_steps = 0, allocations = 0;
  RunConfig config{.threads = 2,
                   .page_size = 16,
                   .attention = GetParam(),
                   .overlap = false,
                   .max_seq_len = 512,
                   .graph_max = 8};
  config.on_step = [&](const Engine&, const Batch& batch) {
    ++(batch.is_decode() ? decode_steps : other_steps);
  };
  testing_util::AllocationCounter counter;
  ScheduledRun run(sample_model_path(), config);
  GraphRunner& graphs = *run.engine().graphs();
  graphs.set_observer([&](ReplayPoint point, const Batch&) {
    if (point == ReplayPoint::kBegin) counter.start();
    if (point == ReplayPoint::kEnd) allocations += counter.stop();
  });
  const auto before = addresses(graphs);
  ASSERT_GE(before.size(), 4U * 7) << "four sizes; four inputs, and three of the backend's";

  // Padded from 5 rows to 8, then from 3 to 4, then from 2 to 2.
  const std::vector<std::vector<Wanted>> waves = {
      {{"plain0", 48}, {"plain2", 48}, {"plain3", 48}, {"plain4", 48}, {"plain5", 48}},
      {{"plain1", 16}, {"chat7", 64}, {"chat2", 64}}};
  std::vector<std::pair<std::size_t, const nlohmann::json*>> submitted;
  for (const auto& wave : waves) {
    for (const Wanted& wanted : wave) {
      const auto prompt = std::find_if(golden["prompts"].begin(), golden["prompts"].end(),
                                       [&](const auto& p) { return p["name"] == wanted.prompt; });
      ASSERT_NE(prompt, golden["prompts"].end()) << wanted.prompt;
      const auto tokens = static_cast<std::int64_t>(wanted.limit);
      submitted.emplace_back(
          run.submit((*prompt)["ids"], {.max_tokens = tokens, .ignore_eos = true}), &*prompt);
    }
    run.finish();
  }
  for (const auto& [request, prompt] : submitted) {
    SCOPED_TRACE((*prompt)["name"].get<std::string>());
    const std::vector<TokenId>& tokens = run.outcomes()[request].tokens;
    auto expected = (*prompt)["greedy"].get<std::vector<TokenId>>();
    expected.resize(tokens.size());
    testing_util::expect_greedy(tokens, expected, (*prompt)["margins"], 2e-3);
  }
  const GraphStats stats = graphs.stats();
  EXPECT_GE(stats.replays, 100);
  EXPECT_EQ(stats.replays, decode_steps) << "every decode step";
  EXPECT_EQ(stats.eager_decode_steps, 0);
  EXPECT_EQ(stats.eager_steps, other_steps);
  EXPECT_GT(stats.padding_rows, 100);
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(before, addresses(graphs));
}

INSTANTIATE_TEST_SUITE_P(Backends, SampleModelGraphTest,
                         testing::Values("ref", "fa", "fi", "trtllm", "fa,fi"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

}  // namespace
}  // namespace minisgl
