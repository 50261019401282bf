#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "minisgl/error.h"

namespace minisgl {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

KvPlanInput input() {
  return {.bytes_per_page = kMiB,
          .page_size = 16,
          .max_rows = 4,
          .max_seq_len = 100,
          .available_bytes = 1000 * kMiB,
          .memory_ratio = 0.5};
}

std::string error_of(const KvPlanInput& in) {
  try {
    plan_kv_cache(in);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryPlanTest, TakesWhatAllRequestsCanFillWhenThereIsRoom) {
  const KvPlan plan = plan_kv_cache(input());
  EXPECT_EQ(plan.num_pages, 4 * 7) << "a request of 100 tokens fills 7 pages of 16";
  EXPECT_EQ(plan.max_seq_len, 100);
  EXPECT_FALSE(plan.limited_by_memory);
}

TEST(MemoryPlanTest, TakesItsShareOfTheMemoryWhenThereIsLessLeavingOnePageForPadding) {
  KvPlanInput in = input();
  in.available_bytes = 12 * kMiB;
  const KvPlan plan = plan_kv_cache(in);
  EXPECT_EQ(plan.num_pages, 5);
  EXPECT_EQ(plan.max_seq_len, 80) << "a request cannot be longer than the pool";
  EXPECT_TRUE(plan.limited_by_memory);
}

TEST(MemoryPlanTest, AnExplicitNumberIsTakenOrRefused) {
  KvPlanInput in = input();
  in.num_pages_override = 999;
  EXPECT_EQ(plan_kv_cache(in).num_pages, 999);
  in.num_pages_override = 1000;
  EXPECT_EQ(error_of(in),
            "not enough memory for the KV cache: 1000 pages of 16 tokens need 0.98 GiB, 0.98 GiB "
            "are available; lower --num-pages");
}

TEST(MemoryPlanTest, TooLittleMemoryIsAnErrorWithBothNumbers) {
  KvPlanInput in = input();
  in.available_bytes = 5 * kMiB;
  EXPECT_NE(
      error_of(in).find(
          "two pages of 16 tokens need 0.00 GiB, but 50 % of the available 0.00 GiB are allowed"),
      std::string::npos)
      << error_of(in);
}

TEST(MemoryPlanTest, LocationsFitInto31Bits) {
  KvPlanInput in = input();
  in.bytes_per_page = 1;
  in.max_rows = 1 << 30;
  in.available_bytes = std::int64_t{1} << 50;
  const KvPlan plan = plan_kv_cache(in);
  EXPECT_LE((std::int64_t{plan.num_pages} + 1) * in.page_size, std::int64_t{1} << 31);
}

TEST(MemoryPlanTest, ThisMachineHasMemory) {
  EXPECT_GT(available_memory_bytes(), 0);
  EXPECT_GT(resident_memory_bytes(), 1 << 20);
}

}  // namespace
}  // namespace minisgl
