// What the table of architectures adds to Llama's graph, beyond golden_test.cc: probabilities of
// prompts, LongRoPE's other factors, and the same models as GGUF files.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "testing/golden.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

class ArchitectureTest : public testing::TestWithParam<std::string> {
 protected:
  ArchitectureTest() { fs::create_directories(folder_); }
  ~ArchitectureTest() override { fs::remove_all(folder_); }

  /// A copy of a tiny model whose config.json `change` edits.
  fs::path changed_model(const std::string& name, const std::function<void(json&)>& change) const {
    const fs::path copy = folder_ / name;
    fs::create_directories(copy);
    fs::copy_file(testing_util::tiny_model(name) / "model.safetensors", copy / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    json config = testing_util::read_json(testing_util::tiny_model(name) / "config.json");
    change(config);
    std::ofstream(copy / "config.json") << config;
    return copy;
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_architectures_test_" + std::to_string(::getpid()));
};

TEST_P(ArchitectureTest, ProbabilitiesOfPromptsAreThoseOfTransformers) {
  const fs::path folder = testing_util::tiny_model(GetParam());
  const json golden = testing_util::read_json(folder / "golden.json");
  for (const std::int32_t page_size : {1, 16}) {
    ScheduledRun run(folder, {.threads = 2, .page_size = page_size, .prefill_budget = 32});
    for (const json& prompt : golden["prompts"]) {
      if (prompt["len"] == 1) continue;
      const std::vector<TokenId> ids = prompt["ids"];
      const std::vector<double> actual = run.engine().token_logprobs(ids);
      const std::vector<double> expected = prompt["token_logprobs"];
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], 1e-4) << ids.size() << " tokens, after token " << i;
    }
  }
}

/// config.json without what its GGUF cannot say: see models/family_config.h.
void forget(const std::string& name, json& config) {
  if (name.starts_with("gemma")) config["query_pre_attn_scalar"] = config["head_dim"];
}

TEST_P(ArchitectureTest, AGgufFileGivesTheSameBitsAsTheFolder) {
  const fs::path folder =
      changed_model(GetParam(), [](json& config) { forget(GetParam(), config); });
  const fs::path gguf = folder_ / "model.gguf";
  testing_util::write_tiny_gguf(folder, GetParam(), gguf);
  const json golden = testing_util::read_json(testing_util::tiny_model(GetParam()) / "golden.json");
  std::vector<std::vector<std::vector<std::uint64_t>>> hashes;
  for (const fs::path& path : {folder, gguf}) {
    ScheduledRun run(path, {});
    for (const json& prompt : golden["prompts"])
      run.submit(prompt["ids"], {.max_tokens = 8, .ignore_eos = true});
    run.finish();
    hashes.emplace_back();
    for (const auto& outcome : run.outcomes()) hashes.back().push_back(outcome.logits_hash);
  }
  ASSERT_EQ(hashes[0].back().size(), 8U);
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_P(ArchitectureTest, GraphsOfDecodeStepsGiveTheSameIds) {
  const fs::path folder = testing_util::tiny_model(GetParam());
  const json golden = testing_util::read_json(folder / "golden.json");
  ScheduledRun run(folder, {.graph_max = 8, .check_graphs = true});
  for (const json& prompt : golden["prompts"])
    run.submit(prompt["ids"], {.max_tokens = 32, .ignore_eos = true});
  run.finish();
  for (std::size_t i = 0; i < golden["prompts"].size(); ++i)
    EXPECT_EQ(run.outcomes()[i].tokens, golden["prompts"][i]["greedy"].get<std::vector<TokenId>>());
}

INSTANTIATE_TEST_SUITE_P(Models, ArchitectureTest,
                         testing::Values("smollm3", "gemma2", "gemma3", "phi3", "granite", "olmo2"),
                         [](const auto& info) { return info.param; });

class VariantTest : public ArchitectureTest {};

TEST_F(VariantTest, AContextBeyondTheOriginalOneTakesTheLongFactors) {
  const fs::path folder = testing_util::tiny_model("phi3");
  const json golden = testing_util::read_json(folder / "golden.json");
  const json& prompt = golden["long_prompts"][0];
  ScheduledRun run(folder, {.page_size = 16, .max_seq_len = 640, .keep_logits = 1});
  run.submit(prompt["ids"], {.max_tokens = 32, .ignore_eos = true});
  run.finish();
  testing_util::expect_top_logits(run.outcomes()[0].logits.at(0), prompt["top10"], 2e-4);
  EXPECT_EQ(run.outcomes()[0].tokens, prompt["greedy"].get<std::vector<TokenId>>());
}

// Oracle: the goldens of the text model alone.
TEST_F(VariantTest, TheTextPartOfAModelWithImagesIsTheTextModel) {
  const fs::path folder = changed_model("gemma3", [](json& config) {
    json outer = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                  {"eos_token_id", {2, 7}},
                  {"dtype", config["dtype"]},
                  {"vision_config", {{"hidden_size", 32}}}};
    config.erase("architectures");
    config.erase("dtype");
    config.erase("eos_token_id");
    outer["text_config"] = config;
    config = outer;
  });
  const fs::path text = testing_util::tiny_model("gemma3");
  testing_util::write_safetensors(
      folder / "model.safetensors", text,
      {.renamed = [](const std::string& name) { return "language_model." + name; }});
  const json golden = testing_util::read_json(text / "golden.json");
  ScheduledRun run(folder, {.keep_logits = 1});
  for (const json& prompt : golden["prompts"])
    run.submit(prompt["ids"], {.max_tokens = 32, .ignore_eos = true});
  run.finish();
  for (std::size_t i = 0; i < golden["prompts"].size(); ++i) {
    const json& prompt = golden["prompts"][i];
    testing_util::expect_top_logits(run.outcomes()[i].logits.at(0), prompt["top10"], 2e-4);
    EXPECT_EQ(run.outcomes()[i].tokens, prompt["greedy"].get<std::vector<TokenId>>());
  }
}

}  // namespace
}  // namespace minisgl
