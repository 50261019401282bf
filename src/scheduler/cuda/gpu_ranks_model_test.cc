// Whole models on two GPUs, a process each. Without them every test is skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tensor/cuda/device.h"
#include "testing/golden.h"
#include "testing/gpu.h"
#include "testing/process_ranks.h"
#include "testing/ranked_run.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

using testing_util::RunConfig;
using testing_util::ScheduledRun;

class GpuRanksModelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = testing_util::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    if (cuda::num_devices() < 2) GTEST_SKIP() << "there is one GPU only";
    if (!testing_util::kHasGloo) GTEST_SKIP() << "there is no gloo in this build";
  }
};

TEST_P(GpuRanksModelTest, LogitsAndGreedyIdsAreThoseOfTransformersAsFarAsBf16Goes) {
  const std::filesystem::path folder = testing_util::tiny_model(GetParam());
  const nlohmann::json golden = testing_util::read_json(folder / "golden.json");
  testing_util::run_in_processes(2, [&](RankGroup& group) {
    const Device device{DeviceKind::kCuda, static_cast<std::int8_t>(group.rank())};
    cuda::make_current(device);
    group.connect_devices(device);
    for (const RunConfig& config :
         {RunConfig{.device = device, .graph_max = 0, .keep_logits = 1},
          RunConfig{
              .device = device, .page_size = 64, .graph_sizes = {1, 2, 4, 8}, .keep_logits = 1}}) {
      SCOPED_TRACE(testing_util::describe(config));
      testing_util::run_one_rank(
          group.links(), {group.rank(), group.size()}, folder, config, [&](ScheduledRun& run) {
            testing_util::submit_golden(run, golden);
            run.finish();
            testing_util::expect_bf16_answers(run, golden, GetParam(), "two GPUs");
          });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Tiny, GpuRanksModelTest,
                         testing::Values("llama", "llama-f32", "llama-sharded", "mistral", "qwen2",
                                         "qwen3", "qwen3-yarn", "qwen3_moe", "qwen3_moe-mixed"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace minisgl
