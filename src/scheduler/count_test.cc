#include "scheduler/count.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

Batch batch_of(std::int32_t rows, std::int32_t decode) {
  Batch batch;
  batch.num_rows = rows;
  batch.num_decode = decode;
  return batch;
}

TEST(CountTest, StepsAreCountedByKindAndByRows) {
  SchedulerStats stats;
  for (const std::int32_t rows : {1, 2, 3, 4, 5, 8, 9, 1024, 1025, 5000})
    count_step(batch_of(rows, rows), stats);
  count_step(batch_of(4, 0), stats);
  count_step(batch_of(4, 3), stats);
  EXPECT_EQ(stats.steps, 12);
  EXPECT_EQ(stats.decode_steps, 10);
  EXPECT_EQ(stats.prefill_steps, 1);
  EXPECT_EQ(stats.mixed_steps, 1);
  EXPECT_EQ(stats.step_rows, 1 + 2 + 3 + 4 + 5 + 8 + 9 + 1024 + 1025 + 5000 + 4 + 4);
  const std::array<std::int64_t, 12> expected = {1, 1, 4, 2, 1, 0, 0, 0, 0, 0, 1, 2};
  EXPECT_EQ(stats.steps_by_rows, expected);
}

TEST(CountTest, EveryEndHasItsCounter) {
  SchedulerStats stats;
  using enum FinishReason;
  for (const FinishReason reason : {kStop, kLength, kLength, kAbort, kError, kNone})
    count_finish(reason, stats);
  EXPECT_EQ(stats.stopped, 1);
  EXPECT_EQ(stats.length_reached, 2);
  EXPECT_EQ(stats.aborted, 1);
  EXPECT_EQ(stats.failed, 1);
}

}  // namespace
}  // namespace minisgl
