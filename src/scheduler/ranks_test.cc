// Models divided over ranks, against the same models whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "testing/golden.h"
#include "testing/ranked_answers.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::Prompts;
using testing_util::RunConfig;
using testing_util::ScheduledRun;
using testing_util::tiny_model;

Prompts prompts_of(const std::filesystem::path& folder) {
  const nlohmann::json golden = testing_util::read_json(folder / "golden.json");
  Prompts prompts;
  for (const auto& prompt : golden["prompts"]) prompts.push_back(prompt["ids"]);
  EXPECT_GE(prompts.size(), 3U);
  return prompts;
}

void expect_same_answers(const std::filesystem::path& model, int ranks, const RunConfig& config,
                         const Prompts& prompts) {
  testing_util::expect_answers(testing_util::answers(model, config, prompts), model, ranks, config,
                               prompts);
}

struct Case {
  std::string model;
  int ranks;
};

class RanksTest : public testing::TestWithParam<Case> {};

TEST_P(RanksTest, LogitsAndIdsAreThoseOfOneRank) {
  const std::filesystem::path folder = tiny_model(GetParam().model);
  const auto prompts = prompts_of(folder);
  for (const RunConfig& config :
       {RunConfig{}, RunConfig{.page_size = 16, .prefill_budget = 23, .attention = "fa"},
        RunConfig{.threads = 2,
                  .page_size = 4,
                  .prefill_budget = 32,
                  .cache = "naive",
                  .attention = "fi",
                  .graph_max = 4,
                  .check_graphs = true}})
    expect_same_answers(folder, GetParam().ranks, config, prompts);
}

INSTANTIATE_TEST_SUITE_P(
    Models, RanksTest,
    testing::Values(Case{"llama", 2}, Case{"llama-f32", 2}, Case{"llama-sharded", 2},
                    Case{"llama-sharded", 4},  // key heads are shared by two ranks each
                    Case{"llama-tied", 3}, Case{"mistral", 2}, Case{"mistral-window", 2},
                    Case{"mistral3", 2}, Case{"qwen2", 2}, Case{"qwen3", 2},
                    Case{"qwen3-windows", 2}, Case{"qwen3-yarn", 2}, Case{"qwen3_moe", 2},
                    Case{"qwen3_moe-mixed", 2}, Case{"gemma2", 2}, Case{"gemma3", 2},
                    Case{"phi3", 2}, Case{"granite", 2}),
    [](const auto& info) {
      std::string name = info.param.model + "_on_" + std::to_string(info.param.ranks);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(RanksOnlyTest, AnswersAreThoseOfOneRankWhateverTheSettings) {
  const std::filesystem::path folder = tiny_model("llama-tied");
  const Prompts prompts = prompts_of(folder);
  const std::vector<Outcome> whole = testing_util::answers(folder, {}, prompts);
  for (const RunConfig& config : testing_util::settings_of_ranks())
    testing_util::expect_answers(whole, folder, 3, config, prompts);
}

/// A folder with the configuration of a tiny model, changed.
class ChangedModel {
 public:
  ChangedModel(const std::string& model, const std::function<void(nlohmann::json&)>& change)
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("minisgl-ranks-" + model + "-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    nlohmann::json config = testing_util::read_json(tiny_model(model) / "config.json");
    change(config);
    std::ofstream(folder_ / "config.json") << config;
  }
  ~ChangedModel() { std::filesystem::remove_all(folder_); }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// Of this architecture there is no tiny model whose sizes two ranks can share.
TEST(RanksOnlyTest, NormsOverAllHeadsAreThoseOfOneRank) {
  for (const int kv_heads : {4, 2, 1}) {
    const ChangedModel model("olmo2", [&](nlohmann::json& config) {
      config["hidden_size"] = 64;
      config["num_attention_heads"] = 4;
      config["num_key_value_heads"] = kv_heads;
      config["head_dim"] = 16;
      config["intermediate_size"] = 96;
    });
    SCOPED_TRACE(std::to_string(kv_heads) + " key heads");
    for (const int ranks : {2, 4})
      expect_same_answers(model.folder(), ranks, {.dummy_weights = true},
                          {{1, 2, 3, 4, 5, 6, 7}, {9, 8, 7, 200, 17}});
  }
}

TEST(RanksOnlyTest, AVocabularyThatDoesNotDivideIsShared) {
  const ChangedModel model("qwen3", [](nlohmann::json& config) { config["vocab_size"] = 651; });
  for (const int ranks : {2, 4})
    expect_same_answers(model.folder(), ranks, {.dummy_weights = true},
                        {{1, 650, 3}, {7, 330, 640}});
}

TEST(RanksOnlyTest, DrawsAndLogProbabilitiesAreTheSameOnEveryRank) {
  const std::filesystem::path folder = tiny_model("llama");
  const auto prompts = prompts_of(folder);
  const auto ask = [&](ScheduledRun& run) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      run.submit(prompts[i], {.temperature = 0.8,
                              .top_k = 40,
                              .top_p = 0.95,
                              .presence_penalty = 0.3,
                              .logit_bias = {{5, 2.0}},
                              .seed = i % 2 == 0 ? std::optional<std::uint64_t>(i) : std::nullopt,
                              .max_tokens = 12,
                              .ignore_eos = true,
                              .num_logprobs = 2,
                              .prompt_logprobs = 1});
    }
    run.finish();
    return run.outcomes();
  };
  ScheduledRun whole(folder, {});
  const std::vector<Outcome> expected = ask(whole);
  testing_util::run_on_ranks(2, folder, {}, [&](ScheduledRun& run) {
    const std::vector<Outcome> actual = ask(run);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "prompt " << i;
      ASSERT_EQ(actual[i].prompt_logprobs.size(), prompts[i].size() - 1);
      for (std::size_t at = 0; at < actual[i].prompt_logprobs.size(); ++at)
        EXPECT_NEAR(actual[i].prompt_logprobs[at].chosen.logprob,
                    expected[i].prompt_logprobs[at].chosen.logprob, 1e-4);
    }
  });
}

TEST(RanksOnlyTest, AbortsInTheMiddleLeaveTheLedgersOfAllRanksInOrder) {
  const std::filesystem::path folder = tiny_model("qwen3");
  const auto prompts = prompts_of(folder);
  testing_util::run_on_ranks(2, folder, {.prefill_budget = 16}, [&](ScheduledRun& run) {
    for (std::size_t i = 0; i < 12; ++i) {
      const std::size_t request =
          run.submit(prompts[i % prompts.size()], {.max_tokens = 40, .ignore_eos = true});
      for (std::size_t turn = 0; turn < i; ++turn) run.step();
      if (i % 3 == 0) run.abort(request);
    }
    run.finish();
    for (std::size_t i = 0; i < 12; ++i)
      EXPECT_EQ(run.outcomes()[i].finish,
                i % 3 == 0 ? FinishReason::kAbort : FinishReason::kLength);
  });
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(RanksOnlyTest, SizesThatDoNotDivideAreRefusedBeforeLoading) {
  const auto load = [](const std::string& model, int ranks) {
    return error_of([&] { load_model(tiny_model(model), {.shard = {0, ranks}}); });
  };
  EXPECT_EQ(
      load("llama-tied", 2),
      "the model cannot be divided over 2 ranks: it has 3 query heads; possible are --tp 1, 3");
  EXPECT_NE(load("olmo2", 3).find("it has 64 columns of the MLP; possible are --tp 1"),
            std::string::npos);
  EXPECT_NE(load("qwen3_moe", 5).find("4 query heads, 2 key heads, 48 columns of each expert"),
            std::string::npos)
      << load("qwen3_moe", 5);
}

}  // namespace
}  // namespace minisgl
