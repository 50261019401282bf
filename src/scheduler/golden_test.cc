// Tiny models of every kind, against transformers: logits, log-probabilities and greedy ids,
// however a request is run.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "testing/golden.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::RunConfig;
using testing_util::ScheduledRun;
using testing_util::tiny_model;

/// Ways to run: every backend, pages of 1, 4 and 16 tokens, whole and chunked prompts, graphs.
std::vector<RunConfig> ways_to_run() {
  return {
      {.keep_logits = 1},
      {.threads = 2, .page_size = 16, .prefill_budget = 32, .attention = "ref", .keep_logits = 1},
      {.page_size = 16, .prefill_budget = 7, .attention = "fa", .keep_logits = 1},
      {.threads = 2, .page_size = 4, .prefill_budget = 32, .attention = "fi", .keep_logits = 1},
      {.threads = 2, .attention = "trtllm", .keep_logits = 1},
      {.threads = 2,
       .prefill_budget = 32,
       .attention = "fa,fi",
       .graph_max = 8,
       .check_graphs = true,
       .keep_logits = 1}};
}

class TinyModelTest : public testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path folder_ = tiny_model(GetParam());
  const nlohmann::json golden_ = testing_util::read_json(folder_ / "golden.json");
};

TEST_P(TinyModelTest, LogitsAndGreedyIdsAreThoseOfTransformers) {
  const std::size_t count = golden_["prompts"].size();
  std::vector<std::vector<std::uint64_t>> hashes;  // of the first configuration
  for (const RunConfig& config : ways_to_run()) {
    SCOPED_TRACE(testing_util::describe(config));
    ScheduledRun run(folder_, config);
    testing_util::submit_golden(run, golden_);  // side by side
    run.finish();
    testing_util::submit_golden(run, golden_);  // again: prompts are in the cache
    run.finish();
    for (std::size_t i = 0; i < 2 * count; ++i) {
      const auto& prompt = golden_["prompts"][i % count];
      const testing_util::Outcome& outcome = run.outcomes()[i];
      SCOPED_TRACE("prompt of " + prompt["len"].dump() + " tokens" +
                   (i < count ? "" : ", from the cache"));
      testing_util::expect_top_logits(outcome.logits.at(0), prompt["top10"], 2e-4);
      EXPECT_EQ(outcome.tokens, prompt["greedy"].get<std::vector<TokenId>>());
      EXPECT_EQ(outcome.finish, FinishReason::kLength);
      if (i >= count && prompt["len"] > run.engine().limits().page_size) {
        EXPECT_GT(outcome.cached_tokens, 0);
      }
      if (hashes.size() <= i) hashes.push_back(outcome.logits_hash);
      EXPECT_EQ(outcome.logits_hash, hashes[i % count]) << "not the same bits";
    }
  }
}

TEST_P(TinyModelTest, PromptLogProbabilitiesAreThoseOfTransformers) {
  for (const std::int32_t page_size : {1, 16}) {
    ScheduledRun run(folder_, {.threads = 2, .page_size = page_size, .prefill_budget = 48});
    for (const auto& prompt : golden_["prompts"]) {
      const std::vector<TokenId> ids = prompt["ids"];
      const std::vector<double> expected = prompt["token_logprobs"];
      const std::vector<double> actual = run.engine().token_logprobs(ids);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], 1e-4) << "of token " << i + 1 << " of " << ids.size();
    }
  }
}

/// Hashes of a few tokens' logits.
std::vector<std::uint64_t> hashes_of(const std::filesystem::path& model,
                                     const nlohmann::json& golden) {
  ScheduledRun run(model, {});
  run.submit(golden["prompts"][4]["ids"], {.max_tokens = 4, .ignore_eos = true});
  run.finish();
  return run.outcomes()[0].logits_hash;
}

class SpelledTwiceTest : public TinyModelTest {};

TEST_P(SpelledTwiceTest, TheOtherSpellingOfTheConfigurationGivesTheSameLogits) {
  const std::filesystem::path copy =
      std::filesystem::path(testing::TempDir()) / ("v4-" + GetParam());
  std::filesystem::remove_all(copy);
  std::filesystem::create_directories(copy);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    if (entry.path().filename() != "config.json" && entry.path().filename() != "config.v4.json")
      std::filesystem::copy(entry.path(), copy / entry.path().filename());
  std::filesystem::copy(folder_ / "config.v4.json", copy / "config.json");
  EXPECT_EQ(hashes_of(folder_, golden_), hashes_of(copy, golden_));
  std::filesystem::remove_all(copy);
}

class AsGgufTest : public TinyModelTest {};

TEST_P(AsGgufTest, TheSameModelAsAGgufFileGivesTheSameLogits) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / (GetParam() + ".gguf");
  testing_util::write_tiny_gguf(folder_, GetParam() == "qwen3_moe" ? "qwen3moe" : "qwen3", file);
  EXPECT_EQ(hashes_of(folder_, golden_), hashes_of(file, golden_));
  std::filesystem::remove(file);
}

/// llama-f32 with dynamic rotary scaling.
class DynamicRopeTest : public testing::Test {
 protected:
  DynamicRopeTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(llama_, folder_);
    nlohmann::json config = testing_util::read_json(folder_ / "config.json");
    config.update(golden_["changes"]);
    std::ofstream(folder_ / "config.json") << config;
  }
  ~DynamicRopeTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path llama_ = tiny_model("llama-f32");
  const nlohmann::json golden_ = testing_util::read_json(llama_ / "dynamic.json");
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / "minisgl-llama-dynamic";
};

TEST_F(DynamicRopeTest, AWindowBeyondTheContextIsThatOfTransformers) {
  const std::vector<TokenId> ids = golden_["ids"];
  const std::vector<double> expected = golden_["token_logprobs"];
  ScheduledRun run(folder_, {.prefill_budget = 50, .max_seq_len = 128});
  const std::vector<double> actual = run.engine().token_logprobs(ids);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-4) << i;
}

TEST_F(DynamicRopeTest, WithinTheContextNothingIsScaled) {
  const nlohmann::json plain = testing_util::read_json(llama_ / "golden.json");
  EXPECT_EQ(hashes_of(folder_, plain), hashes_of(llama_, plain));
}

TEST_F(DynamicRopeTest, MoreThanTheFactorAllowsIsRefused) {
  try {
    ScheduledRun(folder_, {.max_seq_len = 129});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "--max-seq-len-override 129 is longer than the model's context of 128 tokens");
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, TinyModelTest,
                         testing::Values("llama", "llama-f32", "llama-sharded", "llama-tied",
                                         "mistral", "mistral-window", "mistral3", "qwen2", "qwen3",
                                         "qwen3-windows", "qwen3-yarn", "qwen3_moe",
                                         "qwen3_moe-mixed", "smollm3", "gemma2", "gemma3", "phi3",
                                         "granite", "olmo2"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Models, SpelledTwiceTest,
                         testing::Values("llama", "llama-f32", "llama-sharded", "llama-tied",
                                         "mistral", "qwen2", "qwen3", "qwen3-yarn", "qwen3_moe",
                                         "qwen3_moe-mixed", "smollm3", "gemma2", "gemma3", "phi3",
                                         "granite", "olmo2"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Models, AsGgufTest, testing::Values("qwen3-yarn", "qwen3_moe"), name_of);

}  // namespace
}  // namespace minisgl
