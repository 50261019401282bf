// Whole models on a GPU. Without one every test is skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "testing/golden.h"
#include "testing/gpu.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::RunConfig;
using testing_util::ScheduledRun;

class GpuModelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = testing_util::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  std::filesystem::path folder() const { return testing_util::tiny_model(GetParam()); }
};

TEST_P(GpuModelTest, LogitsAndGreedyIdsAreThoseOfTransformersAsFarAsBf16Goes) {
  const nlohmann::json golden = testing_util::read_json(folder() / "golden.json");
  for (const RunConfig& config :
       {RunConfig{.device = kGpu, .graph_max = 0, .keep_logits = 1},
        RunConfig{.device = kGpu,
                  .page_size = 16,
                  .prefill_budget = 32,
                  .attention = "ref",
                  .keep_logits = 1},
        RunConfig{.device = kGpu, .page_size = 64, .graph_sizes = {1, 2, 4, 8}, .keep_logits = 1},
        RunConfig{.device = kGpu,
                  .page_size = 256,
                  .num_pages = 64,
                  .overlap = false,
                  .graph_sizes = {16},
                  .keep_logits = 1}}) {
    SCOPED_TRACE(testing_util::describe(config));
    ScheduledRun run(folder(), config);
    testing_util::submit_golden(run, golden);
    run.finish();
    const std::size_t equal = testing_util::expect_bf16_answers(run, golden, GetParam(), "a GPU");
    EXPECT_GE(equal, golden["prompts"].size() - 2);
  }
}

TEST_P(GpuModelTest, AReplayGivesTheBitsOfAnEagerStep) {
  const nlohmann::json golden = testing_util::read_json(folder() / "golden.json");
  // One engine: its products were measured once, so that both kinds of step run the same kernels.
  // Those depend on the number of rows, up to the next power of two, and so do graphs.
  ScheduledRun run(folder(), {.device = kGpu, .cache = "naive", .graph_sizes = {1, 2, 4, 8}});
  ASSERT_NE(run.engine().graphs(), nullptr);
  testing_util::submit_golden(run, golden);
  run.finish();
  EXPECT_GT(run.engine().graphs()->stats().replays, 20);
  const std::int64_t replays = run.engine().graphs()->stats().replays;
  run.engine().graphs()->set_enabled(false);
  testing_util::submit_golden(run, golden);
  run.finish();
  EXPECT_EQ(run.engine().graphs()->stats().replays, replays);
  const std::size_t count = golden["prompts"].size();
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(run.outcomes()[i].logits_hash, run.outcomes()[count + i].logits_hash) << i;
    EXPECT_EQ(run.outcomes()[i].tokens, run.outcomes()[count + i].tokens) << i;
  }
}

TEST_P(GpuModelTest, ScoresOfATextAreThoseOfTransformersAsFarAsBf16Goes) {
  const nlohmann::json golden = testing_util::read_json(folder() / "golden.json");
  ScheduledRun run(folder(), {.device = kGpu, .prefill_budget = 64, .graph_max = 0});
  // Where two experts are nearly equal, bf16 may choose the other one for a token.
  const bool is_mixture = GetParam().find("moe") != std::string::npos;
  for (const auto& prompt : golden["prompts"]) {
    const auto expected = prompt["token_logprobs"].get<std::vector<double>>();
    const std::vector<double> found =
        run.engine().token_logprobs(prompt["ids"].get<std::vector<TokenId>>());
    ASSERT_EQ(found.size(), expected.size());
    std::size_t far = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::abs(found[i] - expected[i]) <= 0.25) continue;
      ++far;
      EXPECT_TRUE(is_mixture && std::abs(found[i] - expected[i]) < 1.0)
          << "token " << i + 1 << ": " << found[i] << ", expected " << expected[i];
    }
    EXPECT_LE(far, 1 + found.size() / 50);
  }
}

/// Keys and values of fp8 have three bits behind the point, those of bf16 seven.
class GpuFp8CacheTest : public GpuModelTest {};

TEST_P(GpuFp8CacheTest, ScoresMoveLittleAndThePoolIsHalfAsLarge) {
  const nlohmann::json golden = testing_util::read_json(folder() / "golden.json");
  RunConfig config{.device = kGpu, .page_size = 16, .prefill_budget = 64, .graph_max = 0};
  const std::int64_t bf16_bytes = ScheduledRun(folder(), config).engine().kv_pool_bytes();
  config.kv_cache_dtype = DType::kF8E4M3;
  ScheduledRun fa(folder(), config);
  config.attention = "ref";
  ScheduledRun ref(folder(), config);
  EXPECT_EQ(2 * fa.engine().kv_pool_bytes(), bf16_bytes);
  double from_golden = 0, from_ref = 0, count = 0;
  for (const auto& prompt : golden["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<TokenId>>();
    const auto expected = prompt["token_logprobs"].get<std::vector<double>>();
    const std::vector<double> with_fa = fa.engine().token_logprobs(ids);
    const std::vector<double> with_ref = ref.engine().token_logprobs(ids);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(std::abs(with_fa[i] - expected[i]), 2) << "token " << i + 1;
      from_golden += std::abs(with_fa[i] - expected[i]);
      from_ref += std::abs(with_fa[i] - with_ref[i]);
      ++count;
    }
  }
  std::printf("%s with fp8 keys and values: scores off by %.4f on average, from ref's by %.4f\n",
              GetParam().c_str(), from_golden / count, from_ref / count);
  EXPECT_LE(from_golden / count, 0.2);
  EXPECT_LE(from_ref / count, 0.05);
}

TEST_P(GpuFp8CacheTest, AReplayGivesTheBitsOfAnEagerStep) {
  const nlohmann::json golden = testing_util::read_json(folder() / "golden.json");
  ScheduledRun run(
      folder(),
      {.device = kGpu, .cache = "naive", .kv_cache_dtype = DType::kF8E4M3, .graph_sizes = {8}});
  ASSERT_NE(run.engine().graphs(), nullptr);
  testing_util::submit_golden(run, golden);
  run.finish();
  EXPECT_GT(run.engine().graphs()->stats().replays, 20);
  run.engine().graphs()->set_enabled(false);
  testing_util::submit_golden(run, golden);
  run.finish();
  const std::size_t count = golden["prompts"].size();
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(run.outcomes()[i].logits_hash, run.outcomes()[count + i].logits_hash) << i;
}

INSTANTIATE_TEST_SUITE_P(Tiny, GpuFp8CacheTest, testing::Values("llama", "qwen3"));

INSTANTIATE_TEST_SUITE_P(Tiny, GpuModelTest,
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
