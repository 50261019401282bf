#include "engine/graph_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Device kGpu{DeviceKind::kCuda, 0};
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

std::vector<std::int32_t> up_to(std::int32_t max) {
  return graph_batch_sizes({.max_batch_size = max, .max_rows = 1000, .device = kCpu});
}

/// Rows of padding for each row that is wanted, over batches of 1 .. max rows, all equally often.
double waste(const std::vector<std::int32_t>& sizes, std::int32_t max) {
  std::int64_t padding = 0;
  for (std::int32_t rows = 1; rows <= max; ++rows)
    padding += *std::lower_bound(sizes.begin(), sizes.end(), rows) - rows;
  return static_cast<double>(padding) / (max * (max + 1) / 2.0);
}

TEST(GraphSizesTest, AreOneTwoFourAndTheMultiplesOfEight) {
  EXPECT_THAT(up_to(32), ElementsAre(1, 2, 4, 8, 16, 24, 32));
  EXPECT_EQ(up_to(160).size(), 3U + 20U);
  EXPECT_EQ(up_to(256).size(), 3U + 32U);
}

TEST(GraphSizesTest, TheMaximumIsAlwaysAmongThemAndNothingIsLarger) {
  EXPECT_THAT(up_to(1), ElementsAre(1));
  EXPECT_THAT(up_to(2), ElementsAre(1, 2));
  EXPECT_THAT(up_to(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(up_to(4), ElementsAre(1, 2, 4));
  EXPECT_THAT(up_to(7), ElementsAre(1, 2, 4, 7));
  EXPECT_THAT(up_to(12), ElementsAre(1, 2, 4, 8, 12));
  for (std::int32_t max = 1; max < 100; ++max) EXPECT_EQ(up_to(max).back(), max);
}

TEST(GraphSizesTest, ZeroMeansNone) { EXPECT_THAT(up_to(0), IsEmpty()); }

TEST(GraphSizesTest, AreChosenByTheFreeMemoryOfAGpu) {
  const auto automatic = [](std::int64_t free_bytes) {
    return graph_batch_sizes({.max_rows = 1000, .device = kGpu, .free_bytes = free_bytes}).back();
  };
  EXPECT_EQ(automatic(81 * kGiB), 256);
  EXPECT_EQ(automatic(80 * kGiB), 160);
  EXPECT_EQ(automatic(10 * kGiB), 160);
}

TEST(GraphSizesTest, ThereAreNoneOnACpuUnlessAskedFor) {
  EXPECT_THAT(graph_batch_sizes({.max_rows = 1000, .device = kCpu, .free_bytes = 500 * kGiB}),
              IsEmpty());
  EXPECT_THAT(up_to(2), ElementsAre(1, 2));
}

TEST(GraphSizesTest, NoneIsLargerThanTheRequestsThatRunAtOnce) {
  EXPECT_THAT(graph_batch_sizes({.max_batch_size = 64, .max_rows = 5, .device = kCpu}),
              ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(graph_batch_sizes({.max_rows = 1, .device = kGpu}), ElementsAre(1));
}

TEST(GraphSizesTest, AListIsTakenInOrderAndWithoutRepetitionWhateverElseIsSaid) {
  const std::int32_t listed[] = {16, 3, 3, 9};
  EXPECT_THAT(
      graph_batch_sizes({.listed = listed, .max_batch_size = 0, .max_rows = 4, .device = kCpu}),
      ElementsAre(3, 9, 16));
}

TEST(GraphSizesTest, AListedSizeThatIsNoneIsNamed) {
  const std::int32_t listed[] = {4, 0};
  try {
    graph_batch_sizes({.listed = listed, .max_rows = 4, .device = kCpu});
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a graph needs at least one row; the list of graph batch sizes has 0");
  }
}

// The numbers in docs/graphs.md.
TEST(GraphSizesTest, PaddingCostsAFewPercentOfLargeBatchesAndOneGraphForEachSizeNothing) {
  std::vector<std::int32_t> all(16);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(waste(all, 16), 0);
  EXPECT_NEAR(waste(up_to(8), 8), 7.0 / 36, 1e-9) << "3 is padded by 1, 5, 6 and 7 by 3, 2 and 1";
  EXPECT_NEAR(waste(up_to(16), 16), 0.257, 5e-4);
  EXPECT_NEAR(waste(up_to(32), 32), 0.172, 5e-4);
  EXPECT_NEAR(waste(up_to(160), 160), 0.042, 5e-4);
  EXPECT_NEAR(waste(up_to(256), 256), 0.027, 5e-4);
  EXPECT_NEAR(waste({1, 2, 4, 8, 16, 32, 64, 128, 256}, 256), 0.328, 5e-4)
      << "9 graphs in place of 35";
}

}  // namespace
}  // namespace minisgl
