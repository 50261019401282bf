// What happens when an input of a graph is forgotten: nothing that anybody would notice, unless
// graphs are checked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "testing/golden.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

/// The first three golden prompts of qwen3, six tokens each; `left_out` is not copied.
class Forgetful {
 public:
  Forgetful(const std::string& backend, const std::string& left_out, bool check)
      : run_(std::filesystem::path(MINISGL_TEST_DATA) / "tiny" / "qwen3",
             {.attention = backend, .overlap = false, .graph_max = 4, .check_graphs = check}) {
    run_.engine().graphs()->leave_out(left_out);
    const auto golden = testing_util::read_json(std::filesystem::path(MINISGL_TEST_DATA) / "tiny" /
                                                "qwen3" / "golden.json");
    for (const int i : {2, 3, 4})
      run_.submit(golden["prompts"][i]["ids"], {.max_tokens = 6, .ignore_eos = true});
  }
  std::vector<Outcome> finish() {
    run_.finish();
    return run_.outcomes();
  }
  std::string error() {
    try {
      run_.finish();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  ScheduledRun& run() { return run_; }

 private:
  ScheduledRun run_;
};

/// Backend, buffer.
class GraphFaultsTest : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(GraphFaultsTest, ForgettingToCopyAnInputBreaksReplaySilently) {
  const auto& [backend, name] = GetParam();
  const std::vector<Outcome> right = Forgetful(backend, "", false).finish();
  const std::vector<Outcome> wrong = Forgetful(backend, name, false).finish();
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(wrong[i].error, "") << "nobody notices";
    EXPECT_EQ(wrong[i].finish, FinishReason::kLength);
    ASSERT_EQ(wrong[i].tokens.size(), 6U);
    EXPECT_EQ(wrong[i].tokens[0], right[i].tokens[0])
        << "the first token comes from the prompt's own step";
    EXPECT_EQ(wrong[i].logits_hash[0], right[i].logits_hash[0]);
    if (name == "fa.cu_seqlens_k") {
      EXPECT_EQ(wrong[i].logits_hash, right[i].logits_hash)
          << "an argument that only GPU kernels read";
      continue;
    }
    EXPECT_NE(wrong[i].logits_hash[1], right[i].logits_hash[1])
        << "request " << i << " from its second token on";
  }
}

TEST_P(GraphFaultsTest, TheCheckerNamesTheInputThatWasForgotten) {
  const auto& [backend, name] = GetParam();
  Forgetful forgetful(backend, name, /*check=*/true);
  EXPECT_EQ(forgetful.error(), "graph input " + name + " was not refreshed for this step");
  for (const Outcome& outcome : forgetful.run().outcomes()) {
    EXPECT_EQ(outcome.finish, FinishReason::kError) << "and every request is told";
    EXPECT_EQ(outcome.error, "graph input " + name + " was not refreshed for this step");
    EXPECT_EQ(outcome.tokens.size(), 1U);
  }
}

using Pair = std::pair<std::string, std::string>;
INSTANTIATE_TEST_SUITE_P(Buffers, GraphFaultsTest,
                         testing::Values(Pair{"fa", "input_ids"}, Pair{"fa", "positions"},
                                         Pair{"fa", "out_locs"}, Pair{"fa", "fa.cache_seqlens"},
                                         Pair{"fa", "fa.cu_seqlens_k"}, Pair{"fa", "fa.page_table"},
                                         Pair{"ref", "input_ids"}, Pair{"ref", "positions"},
                                         Pair{"ref", "out_locs"}, Pair{"ref", "ref.cache_seqlens"},
                                         Pair{"ref", "ref.page_table"}),
                         [](const auto& info) {
                           std::string name = info.param.first + "_" + info.param.second;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(GraphFaultsCoverageTest, TheListAboveIsEveryRefreshedBuffer) {
  std::vector<Pair> refreshed;
  for (const std::string backend : {"fa", "ref"}) {
    Forgetful forgetful(backend, "", false);
    for (const CapturedBuffer& buffer : forgetful.run().engine().graphs()->captured_buffers(4))
      if (buffer.content == CapturedContent::kRefreshed)
        refreshed.emplace_back(backend, buffer.name);
  }
  EXPECT_EQ(refreshed.size(), 11U);
}

// Chapter 18's counter-example.
TEST(GraphFaultsPositionsTest, WithoutPositionsTheTokensAreWrongFromTheSecondOn) {
  const std::vector<Outcome> right = Forgetful("fa", "", false).finish();
  const std::vector<Outcome> wrong = Forgetful("fa", "positions", false).finish();
  int parted = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(wrong[i].tokens[0], right[i].tokens[0]);
    parted += wrong[i].tokens[1] != right[i].tokens[1] ? 1 : 0;
  }
  EXPECT_GT(parted, 0);
}

}  // namespace
}  // namespace minisgl
