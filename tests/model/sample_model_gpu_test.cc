// The sample model on a GPU against transformers. Without a GPU the test is skipped.

#include <gtest/gtest.h>

#include <cstdio>

#include "sample_model.h"
#include "testing/golden.h"
#include "testing/gpu.h"
#include "testing/test_data.h"

namespace minisgl {
namespace {

using testing_util::ScheduledRun;

class GpuSampleModelTest : public testing_util::GpuTest {};

// Each step of each golden answer as a request of its own: what the engine would say after the
// golden ids so far. Graphs, prefix cache and steps with prompts and answers mixed take part.
TEST_F(GpuSampleModelTest, GoldenIdsAreItsChoiceAlongTheGoldenAnswers) {
  const nlohmann::json golden =
      testing_util::read_json(testing_util::test_data(MINISGL_TEST_DATA) / "smollm2/golden.json");
  ScheduledRun run(sample_model_path(),
                   {.device = kGpu, .threads = 8, .page_size = 16, .num_pages = 16384});
  struct Step {
    TokenId golden;
    double margin;
  };
  std::vector<Step> steps;
  for (const auto& prompt : golden["prompts"]) {
    auto ids = prompt["ids"].get<std::vector<TokenId>>();
    for (std::size_t i = 0; i < prompt["greedy"].size(); ++i) {
      // Two tokens: the second comes from a decode step.
      run.submit(ids, {.max_tokens = 2, .ignore_eos = true});
      steps.push_back({prompt["greedy"][i], prompt["margins"][i]});
      ids.push_back(prompt["greedy"][i]);
    }
  }
  run.finish();
  std::size_t equal = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const TokenId token = run.outcomes()[i].tokens.at(0);
    equal += token == steps[i].golden ? 1 : 0;
    if (steps[i].margin > 0.5) {
      EXPECT_EQ(token, steps[i].golden) << "step " << i << ", margin " << steps[i].margin;
    }
  }
  std::printf("%zu of %zu golden ids are the engine's choice (%.2f %%)\n", equal, steps.size(),
              100.0 * static_cast<double>(equal) / static_cast<double>(steps.size()));
  EXPECT_GE(static_cast<double>(equal), 0.97 * static_cast<double>(steps.size()));
  EXPECT_GT(run.engine().graphs()->stats().replays, 0);
}

}  // namespace
}  // namespace minisgl
