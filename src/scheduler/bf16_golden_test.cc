// The tiny models in bf16 arithmetic, and their weights in other types: against transformers, and
// against each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "testing/checkpoint.h"
#include "testing/golden.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

class Bf16ModelTest : public testing::TestWithParam<std::string> {
 protected:
  static fs::path source() { return testing_util::tiny_model(GetParam()); }
  const nlohmann::json golden_ = testing_util::read_json(source() / "golden.json");
};

TEST_P(Bf16ModelTest, LogitsAndGreedyIdsAreAsNearAsBf16Allows) {
  std::vector<std::vector<std::uint64_t>> hashes;  // of the first configuration
  double worst_share = 0;
  for (const RunConfig& config :
       {RunConfig{.compute = Compute::kBf16, .keep_logits = 1},
        RunConfig{.threads = 2,
                  .page_size = 16,
                  .prefill_budget = 32,
                  .attention = "fi",
                  .compute = Compute::kBf16,
                  .keep_logits = 1},
        RunConfig{.page_size = 4,
                  .prefill_budget = 7,
                  .cache = "naive",
                  .attention = "fa",
                  .compute = Compute::kBf16,
                  .overlap = false,
                  .keep_logits = 1},
        RunConfig{.attention = "ref", .compute = Compute::kBf16, .keep_logits = 1}}) {
    SCOPED_TRACE(testing_util::describe(config));
    ScheduledRun run(source(), config);
    testing_util::submit_golden(run, golden_);
    run.finish();
    EXPECT_EQ(run.engine().kv().first.dtype, DType::kBF16);
    for (std::size_t i = 0; i < golden_["prompts"].size(); ++i) {
      const auto& prompt = golden_["prompts"][i];
      SCOPED_TRACE("prompt of " + prompt["len"].dump() + " tokens");
      if (hashes.size() <= i) hashes.push_back(run.outcomes()[i].logits_hash);
      EXPECT_EQ(run.outcomes()[i].logits_hash, hashes[i]) << "not the same bits";
      if (testing_util::is_lost_in_rounding(GetParam(), prompt)) continue;
      const double tolerance = testing_util::bf16_tolerance(prompt);
      const std::vector<float>& logits = run.outcomes()[i].logits.at(0);
      testing_util::expect_top_logits(logits, prompt["top10"], tolerance);
      testing_util::expect_greedy(run.outcomes()[i].tokens, prompt["greedy"],
                                  prompt["greedy_margins"], tolerance);
      for (const auto& entry : prompt["top10"])
        worst_share = std::max(
            worst_share,
            std::abs(logits[entry[0].get<std::size_t>()] - entry[1].get<double>()) / tolerance);
    }
  }
  RecordProperty("largest_share_of_the_tolerance", std::to_string(worst_share));
}

TEST_P(Bf16ModelTest, ExactArithmeticIsNotTouchedByIt) {
  const std::vector<TokenId> prompt = golden_["prompts"][4]["ids"];
  std::vector<float> logits[2];
  for (int i = 0; i < 2; ++i) {
    ScheduledRun run(source(),
                     {.compute = i == 0 ? Compute::kExact : Compute::kBf16, .keep_logits = 1});
    run.submit(prompt, {.max_tokens = 1, .ignore_eos = true});
    run.finish();
    logits[i] = run.outcomes()[0].logits.at(0);
  }
  EXPECT_NE(logits[0], logits[1]) << "bf16 arithmetic is not what was asked for";
  testing_util::expect_top_logits(logits[0], golden_["prompts"][4]["top10"], 2e-4);
}

TEST_P(Bf16ModelTest, ADtypeGivesTheLogitsOfACheckpointInThatType) {
  const fs::path folder =
      fs::temp_directory_path() / ("minisgl_dtype_test_" + std::to_string(::getpid()));
  const std::vector<TokenId> prompt = golden_["prompts"][3]["ids"];
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(name(type));
    testing_util::write_rounded(source(), folder, type);
    std::vector<std::uint64_t> hashes[2];
    for (int i = 0; i < 2; ++i) {
      RunConfig config;
      if (i == 0) config.dtype = type;
      ScheduledRun run(i == 0 ? source() : folder, config);
      run.submit(prompt, {.max_tokens = 4, .ignore_eos = true});
      run.finish();
      hashes[i] = run.outcomes()[0].logits_hash;
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, Bf16ModelTest,
                         testing::Values("llama", "llama-f32", "llama-sharded", "llama-tied",
                                         "mistral", "qwen2", "qwen3", "qwen3-yarn", "qwen3_moe",
                                         "qwen3_moe-mixed"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace minisgl
