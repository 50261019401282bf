// What happens when an input of a graph is forgotten: nothing that anybody would notice, unless
// graphs are checked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "testing/golden.h"
#include "testing/gpu.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::Outcome;
using testing_util::RunConfig;
using testing_util::ScheduledRun;

/// The first three golden prompts of qwen3, six tokens each; `left_out` is not copied.
class Forgetful {
 public:
  Forgetful(const std::string& backend, const std::string& left_out, bool check,
            Device device = kCpu)
      : run_(testing_util::tiny_model("qwen3"), {.device = device,
                                                 .page_size = 16,
                                                 .num_pages = 128,
                                                 .attention = backend,
                                                 .overlap = false,
                                                 .graph_max = 4,
                                                 .check_graphs = check}) {
    run_.engine().graphs()->leave_out(left_out);
    const auto golden = testing_util::read_json(testing_util::tiny_model("qwen3") / "golden.json");
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

/// The parameter is a backend.
class GraphFaultsTest : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::string> refreshed_buffers() {
    std::vector<std::string> names;
    Forgetful forgetful(GetParam(), "", false);
    for (const CapturedBuffer& buffer : forgetful.run().engine().graphs()->captured_buffers(4))
      if (buffer.content == CapturedContent::kRefreshed) names.push_back(buffer.name);
    EXPECT_THAT(names, testing::IsSupersetOf({"input_ids", "positions", "out_locs"}));
    EXPECT_GE(names.size(), 5U) << "and lengths and pages of the backend";
    return names;
  }
};

/// Offsets that GPU kernels alone read, and the plan of a short context, which is that of padding.
bool may_be_stale_here(const std::string& name) {
  const std::vector<std::string> names = {"fa.cu_seqlens_k", "trtllm.cum_seq_lens_kv",
                                          "fi.work_indptr",  "fi.work_items",
                                          "fi.merges",       "fi.num_merges"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST_P(GraphFaultsTest, ForgettingToCopyAnInputBreaksReplaySilently) {
  const std::vector<Outcome> right = Forgetful(GetParam(), "", false).finish();
  for (const std::string& name : refreshed_buffers()) {
    SCOPED_TRACE(name);
    const std::vector<Outcome> wrong = Forgetful(GetParam(), name, false).finish();
    int differ = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      EXPECT_EQ(wrong[i].error, "") << "nobody notices";
      EXPECT_EQ(wrong[i].finish, FinishReason::kLength);
      ASSERT_EQ(wrong[i].tokens.size(), 6U);
      EXPECT_EQ(wrong[i].tokens[0], right[i].tokens[0])
          << "the first token comes from the prompt's own step";
      EXPECT_EQ(wrong[i].logits_hash[0], right[i].logits_hash[0]);
      differ += wrong[i].logits_hash[1] != right[i].logits_hash[1] ? 1 : 0;
    }
    // Not always all: the first row's offset is 0 in any step, and a stale length may be the true
    // one.
    EXPECT_TRUE(differ > 0 || may_be_stale_here(name)) << "wrong from the second token on";
  }
}

TEST_P(GraphFaultsTest, TheCheckerNamesTheInputThatWasForgotten) {
  for (const std::string& name : refreshed_buffers()) {
    Forgetful forgetful(GetParam(), name, /*check=*/true);
    EXPECT_EQ(forgetful.error(), "graph input " + name + " was not refreshed for this step");
    for (const Outcome& outcome : forgetful.run().outcomes()) {
      EXPECT_EQ(outcome.finish, FinishReason::kError) << "and every request is told";
      EXPECT_EQ(outcome.error, "graph input " + name + " was not refreshed for this step");
      EXPECT_EQ(outcome.tokens.size(), 1U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GraphFaultsTest,
                         testing::Values("fa", "fi", "trtllm", "fa,fi", "ref"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

/// On a GPU, where a graph has the addresses of real memory.
class GpuGraphFaultsTest : public GraphFaultsTest {
 protected:
  void SetUp() override {
    if (const std::string why = testing_util::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(GpuGraphFaultsTest, AForgottenInputGoesUnnoticedUnlessTheCheckerNamesIt) {
  const std::vector<Outcome> right = Forgetful(GetParam(), "", true, kGpu).finish();
  std::vector<std::string> names;
  {
    Forgetful whole(GetParam(), "", false, kGpu);
    for (const CapturedBuffer& buffer : whole.run().engine().graphs()->captured_buffers(4))
      if (buffer.content == CapturedContent::kRefreshed) names.push_back(buffer.name);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"input_ids", "positions", "out_locs"}));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Forgetful forgetful(GetParam(), name, /*check=*/true, kGpu);
    EXPECT_EQ(forgetful.error(), "graph input " + name + " was not refreshed for this step");
  }
  const std::vector<Outcome> wrong = Forgetful(GetParam(), "positions", false, kGpu).finish();
  int parted = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(right[i].error, "");
    EXPECT_EQ(wrong[i].error, "") << "nobody notices";
    EXPECT_EQ(wrong[i].finish, FinishReason::kLength);
    EXPECT_EQ(wrong[i].tokens[0], right[i].tokens[0]);
    parted += wrong[i].tokens != right[i].tokens ? 1 : 0;
  }
  EXPECT_GT(parted, 0) << "wrong from the second token on";
}

INSTANTIATE_TEST_SUITE_P(Backends, GpuGraphFaultsTest, testing::Values("fa"));

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
