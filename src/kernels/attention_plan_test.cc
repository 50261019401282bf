#include "kernels/attention_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "kernels/cpu/attention_call.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using Rows = std::vector<AttentionPlanRow>;

struct Plan {
  std::vector<std::int32_t> indptr;
  std::vector<std::vector<std::int32_t>> items, merges;
};

std::vector<std::vector<std::int32_t>> split_fields(const std::vector<std::int32_t>& flat) {
  std::vector<std::vector<std::int32_t>> result;
  for (auto at = flat.begin(); at != flat.end(); at += WorkItem::kNumFields)
    result.emplace_back(at, at + WorkItem::kNumFields);
  return result;
}

Plan make_plan(AttentionPlanner& planner, const AttentionPlanShape& shape, const Rows& rows) {
  planner.plan(rows);
  Plan plan;
  plan.indptr.resize(shape.num_workers + 1);
  std::vector<std::int32_t> items(planner.num_items() * WorkItem::kNumFields);
  std::vector<std::int32_t> merges(planner.num_merges() * WorkItem::kNumFields);
  planner.write(plan.indptr, items, merges);
  plan.items = split_fields(items);
  plan.merges = split_fields(merges);
  return plan;
}

/// Every (row, KV head, block, split) that some query of the block sees: counted key by key.
std::map<std::tuple<int, int, int, int>, int> seen(const AttentionPlanShape& shape,
                                                   const Rows& rows) {
  std::map<std::tuple<int, int, int, int>, int> result;
  const int group = shape.num_heads / shape.num_kv_heads;
  for (int row = 0; row < static_cast<int>(rows.size()); ++row) {
    for (int pair = 0; pair < rows[row].num_queries * group; ++pair) {
      const int end = rows[row].num_keys - rows[row].num_queries + 1 + pair / group;
      for (int key = 0; key < end; ++key) {
        if (shape.window_tokens > 0 && key < end - shape.window_tokens) continue;
        for (int head = 0; head < shape.num_kv_heads; ++head)
          result[{row, head, pair / kAttentionRows, key / 512}] = 0;
      }
    }
  }
  return result;
}

TEST(AttentionPlanTest, EverySplitThatIsSeenIsComputedOnceAndEveryCutBlockMerged) {
  testing_util::Random random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const AttentionPlanShape shape{.num_heads = 6,
                                   .num_kv_heads = 2,
                                   .head_dim = 64,
                                   .window_tokens = trial % 3 == 0 ? 700 : 0,
                                   .num_workers = 1 + trial % 5};
    AttentionPlanner planner(shape);
    Rows rows;
    for (std::int64_t i = random.between(1, 6); i > 0; --i) {
      const auto keys = static_cast<std::int32_t>(random.between(1, i == 1 ? 6000 : 900));
      const auto queries = random.below(2) == 0
                               ? 1
                               : static_cast<std::int32_t>(random.between(1, std::min(keys, 80)));
      rows.push_back({queries, keys});
    }
    const Plan plan = make_plan(planner, shape, rows);
    ASSERT_EQ(plan.indptr.front(), 0);
    ASSERT_EQ(plan.indptr.back(), static_cast<std::int32_t>(plan.items.size()));
    ASSERT_TRUE(std::is_sorted(plan.indptr.begin(), plan.indptr.end()));
    ASSERT_LE(planner.num_items(), AttentionPlanner::max_items(shape, rows.size(), 80));
    ASSERT_LE(planner.num_merges(), AttentionPlanner::max_merges(shape));

    auto expected = seen(shape, rows);
    std::map<std::int32_t, int> pieces;  // by state
    for (const auto& item : plan.items) {
      for (int split = item[WorkItem::kSplitBegin]; split < item[WorkItem::kSplitEnd]; ++split) {
        const auto at = expected.find({item[0], item[1], item[2], split});
        ASSERT_NE(at, expected.end()) << "split " << split << " is not seen";
        ++at->second;
      }
      if (item[WorkItem::kState] >= 0) ++pieces[item[WorkItem::kState]];
    }
    for (const auto& [key, count] : expected) ASSERT_EQ(count, 1);
    ASSERT_EQ(pieces.size(), plan.merges.size());
    std::int32_t states = 0;
    for (const auto& merge : plan.merges) {
      ASSERT_GE(pieces[merge[WorkItem::kState]], 2);
      ASSERT_EQ(merge[WorkItem::kState], states) << "states lie one after the other";
      const int pairs = std::min(kAttentionRows, rows[merge[0]].num_queries * 3 -
                                                     merge[WorkItem::kBlock] * kAttentionRows);
      states += pairs * (merge[WorkItem::kSplitEnd] - merge[WorkItem::kSplitBegin]);
    }
    ASSERT_LE(states, AttentionPlanner::max_states(shape));
  }
}

TEST(AttentionPlanTest, OneLongContextIsSharedByAllWorkers) {
  const AttentionPlanShape shape{
      .num_heads = 4, .num_kv_heads = 1, .head_dim = 64, .num_workers = 8};
  AttentionPlanner planner(shape);
  const Plan plan = make_plan(planner, shape, {{1, 32768}, {1, 20}, {1, 300}});
  EXPECT_LT(planner.imbalance(), 1.1) << "64 splits and two short rows for 8 workers";
  EXPECT_EQ(plan.merges.size(), 1U);
}

TEST(AttentionPlanTest, ShortContextsAreNotCut) {
  const AttentionPlanShape shape{
      .num_heads = 9, .num_kv_heads = 3, .head_dim = 64, .num_workers = 4};
  AttentionPlanner planner(shape);
  const Plan plan = make_plan(planner, shape, {{1, 512}, {1, 20}});
  EXPECT_EQ(plan.items.size(), 6U);
  EXPECT_TRUE(plan.merges.empty());
  for (const auto& item : plan.items) EXPECT_EQ(item[WorkItem::kState], -1);
}

TEST(AttentionPlanTest, AWorkerAloneCutsNothing) {
  const AttentionPlanShape shape{
      .num_heads = 1, .num_kv_heads = 1, .head_dim = 64, .num_workers = 1};
  AttentionPlanner planner(shape);
  EXPECT_TRUE(make_plan(planner, shape, {{1, 32768}}).merges.empty());
}

TEST(AttentionPlanTest, TheSameStepGivesTheSamePlanWhateverWasPlannedBefore) {
  const AttentionPlanShape shape{
      .num_heads = 6, .num_kv_heads = 2, .head_dim = 64, .num_workers = 3};
  AttentionPlanner fresh(shape), used(shape);
  const Rows rows = {{1, 4000}, {1, 700}, {40, 1200}};
  make_plan(used, shape, {{1, 9000}, {7, 7}});
  const Plan a = make_plan(fresh, shape, rows), b = make_plan(used, shape, rows);
  EXPECT_EQ(a.indptr, b.indptr);
  EXPECT_EQ(a.items, b.items);
  EXPECT_EQ(a.merges, b.merges);
}

TEST(AttentionPlanTest, AnItemOfTheDrawnExample) {
  // Of one tile each, the loads are 4 + 4, 18 + 4 and 6 + 4: docs/attention.md draws this step.
  const AttentionPlanShape shape{
      .num_heads = 2, .num_kv_heads = 1, .head_dim = 8, .num_workers = 2};
  AttentionPlanner planner(shape);
  const Plan plan = make_plan(planner, shape, {{2, 6}, {9, 9}, {3, 3}});
  EXPECT_THAT(plan.indptr, testing::ElementsAre(0, 1, 3));
  // Row, KV head, block, first split, end, state: the row of 18 pairs first.
  EXPECT_THAT(plan.items[0], testing::ElementsAre(1, 0, 0, 0, 1, -1));
  EXPECT_THAT(plan.items[1], testing::ElementsAre(2, 0, 0, 0, 1, -1));
  EXPECT_THAT(plan.items[2], testing::ElementsAre(0, 0, 0, 0, 1, -1));
}

}  // namespace
}  // namespace minisgl::kernels
