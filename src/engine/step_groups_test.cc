#include "engine/step_groups.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

using std::chrono::milliseconds;

TEST(StepGroupsTest, StepsAreSortedByWhatTheyComputed) {
  StepGroupMeter meter;
  StepGroupMeter::Clock::time_point now{std::chrono::hours(1)};
  const auto step = [&](StepKind kind, int ms) {
    meter.record(kind, {.flops = 1, .read_bytes = 2, .write_bytes = 3}, now,
                 now + milliseconds(ms));
    now += milliseconds(ms);
  };
  step({}, 100);
  step({.decode_rows = 1, .graph = true}, 1);
  step({.decode_rows = 2, .graph = true}, 2);
  step({.decode_rows = 3, .graph = true}, 4);
  step({.decode_rows = 4, .graph = true}, 4);
  step({.decode_rows = 5, .graph = false}, 9);
  step({.decode_rows = 1'000'000, .graph = false}, 50);
  const StepGroups groups = meter.groups();
  EXPECT_EQ(groups.prompts.steps, 1);
  EXPECT_DOUBLE_EQ(groups.prompts.seconds, 0.1);
  EXPECT_EQ(groups.replayed[0].steps, 1);
  EXPECT_EQ(groups.replayed[1].steps, 1);
  EXPECT_EQ(groups.replayed[2].steps, 2);
  EXPECT_EQ(groups.replayed[2].rows, 7);
  EXPECT_DOUBLE_EQ(groups.replayed[2].seconds, 0.008);
  EXPECT_DOUBLE_EQ(groups.replayed[2].work.read_bytes, 4);
  EXPECT_EQ(groups.replayed[3].steps, 0);
  EXPECT_EQ(groups.eager[3].rows, 5);
  EXPECT_EQ(groups.eager[StepGroups::kSizes - 1].rows, 1'000'000);
}

TEST(StepGroupsTest, TimeInWhichStepsOverlapCountsOnce) {
  StepGroupMeter meter;
  const StepGroupMeter::Clock::time_point start{std::chrono::hours(1)};
  const StepKind decode{.decode_rows = 1, .graph = true};
  //        |--------|            100 ms, a prompt
  //             |--------|       100 ms, the last 60 of them alone
  //                          |-| 20 ms, after a pause
  meter.record({}, {}, start, start + milliseconds(100));
  meter.record(decode, {}, start + milliseconds(60), start + milliseconds(160));
  meter.record(decode, {}, start + milliseconds(500), start + milliseconds(520));
  EXPECT_DOUBLE_EQ(meter.groups().prompts.seconds, 0.1);
  EXPECT_DOUBLE_EQ(meter.groups().replayed[0].seconds, 0.08);
}

}  // namespace
}  // namespace minisgl
