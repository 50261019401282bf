// Tiny models of every kind, against transformers: logits and greedy ids.

#include <gtest/gtest.h>

#include <filesystem>

#include "testing/golden.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::RunConfig;
using testing_util::ScheduledRun;

class TinyModelTest : public testing::TestWithParam<std::string> {};

TEST_P(TinyModelTest, LogitsAndGreedyIdsAreThoseOfTransformers) {
  const std::filesystem::path folder = testing_util::tiny_model(GetParam());
  const nlohmann::json golden = testing_util::read_json(folder / "golden.json");
  std::vector<std::vector<std::uint64_t>> hashes;  // of the first configuration
  for (const RunConfig& config :
       {RunConfig{.keep_logits = 1},
        RunConfig{.threads = 2,
                  .page_size = 16,
                  .prefill_budget = 32,
                  .attention = "ref",
                  .keep_logits = 1},
        RunConfig{.page_size = 4, .attention = "fa", .keep_logits = 1},
        RunConfig{.threads = 2,
                  .page_size = 4,
                  .prefill_budget = 32,
                  .attention = "fi",
                  .keep_logits = 1},
        RunConfig{.threads = 2, .page_size = 1, .attention = "trtllm", .keep_logits = 1},
        RunConfig{.prefill_budget = 32, .attention = "fa,fi", .keep_logits = 1}}) {
    SCOPED_TRACE(testing_util::describe(config));
    ScheduledRun run(folder, config);
    for (const auto& prompt : golden["prompts"])
      run.submit(prompt["ids"], {.max_tokens = static_cast<std::int64_t>(prompt["greedy"].size()),
                                 .ignore_eos = true});
    run.finish();
    for (std::size_t i = 0; i < golden["prompts"].size(); ++i) {
      const auto& prompt = golden["prompts"][i];
      SCOPED_TRACE("prompt of " + prompt["len"].dump() + " tokens");
      testing_util::expect_top_logits(run.outcomes()[i].logits.at(0), prompt["top10"], 2e-4);
      EXPECT_EQ(run.outcomes()[i].tokens, prompt["greedy"].get<std::vector<TokenId>>());
      EXPECT_EQ(run.outcomes()[i].finish, FinishReason::kLength);
      if (hashes.size() <= i) hashes.push_back(run.outcomes()[i].logits_hash);
      EXPECT_EQ(run.outcomes()[i].logits_hash, hashes[i]) << "not the same bits";
    }
  }
}

TEST_P(TinyModelTest, TheOtherSpellingOfTheConfigurationGivesTheSameLogits) {
  const std::filesystem::path folder = testing_util::tiny_model(GetParam());
  const std::filesystem::path copy =
      std::filesystem::path(testing::TempDir()) / ("v4-" + GetParam());
  std::filesystem::remove_all(copy);
  std::filesystem::create_directories(copy);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename() != "config.json" && entry.path().filename() != "config.v4.json")
      std::filesystem::copy(entry.path(), copy / entry.path().filename());
  std::filesystem::copy(folder / "config.v4.json", copy / "config.json");
  const std::vector<TokenId> prompt =
      testing_util::read_json(folder / "golden.json")["prompts"][4]["ids"];
  std::vector<std::vector<std::uint64_t>> hashes;
  for (const auto& path : {folder, copy}) {
    ScheduledRun run(path, {});
    run.submit(prompt, {.max_tokens = 4, .ignore_eos = true});
    run.finish();
    hashes.push_back(run.outcomes()[0].logits_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  std::filesystem::remove_all(copy);
}

INSTANTIATE_TEST_SUITE_P(Models, TinyModelTest,
                         testing::Values("llama", "llama-f32", "llama-sharded", "llama-tied",
                                         "mistral", "qwen2", "qwen3", "qwen3-yarn"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace minisgl
