#include "engine/engine_stats.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

using std::chrono::milliseconds;

TEST(StepMeterTest, TimeInWhichStepsOverlapCountsOnce) {
  StepMeter meter;
  const StepMeter::Clock::time_point start{std::chrono::hours(1)};
  //        |--------|            100 ms
  //             |--------|       100 ms, the last 60 of them alone
  //                          |-| 20 ms, after a pause
  meter.record({.flops = 1, .read_bytes = 10, .write_bytes = 2}, start, start + milliseconds(100));
  meter.record({.flops = 1, .read_bytes = 10, .write_bytes = 2}, start + milliseconds(60),
               start + milliseconds(160));
  meter.record({.flops = 2, .read_bytes = 10, .write_bytes = 2}, start + milliseconds(500),
               start + milliseconds(520));
  EngineStats stats;
  meter.add_to(stats);
  EXPECT_DOUBLE_EQ(stats.busy_seconds, 0.18);
  EXPECT_DOUBLE_EQ(stats.work.flops, 4);
  EXPECT_DOUBLE_EQ(stats.work.read_bytes, 30);
  EXPECT_DOUBLE_EQ(stats.work.write_bytes, 6);
  EXPECT_NEAR(stats.flops_per_second, 4 / 0.18, 0.5) << "0.18 s are hardly forgotten yet";
  EXPECT_NEAR(stats.bytes_per_second, 36 / 0.18, 5);
}

TEST(StepMeterTest, RatesFollowWhatIsDoneNow) {
  StepMeter meter;
  StepMeter::Clock::time_point now{std::chrono::hours(1)};
  const auto work_at = [&](double flops_per_second, int seconds) {
    for (int i = 0; i < 10 * seconds; ++i, now += milliseconds(100))
      meter.record({.flops = flops_per_second / 10, .read_bytes = 0, .write_bytes = 0}, now,
                   now + milliseconds(100));
  };
  EngineStats stats;
  meter.add_to(stats);
  EXPECT_EQ(stats.flops_per_second, 0) << "nothing was done yet";
  work_at(1000, 60);
  meter.add_to(stats);
  EXPECT_NEAR(stats.flops_per_second, 1000, 1);
  work_at(50, 60);
  meter.add_to(stats);
  EXPECT_NEAR(stats.flops_per_second, 50, 1);
}

}  // namespace
}  // namespace minisgl
