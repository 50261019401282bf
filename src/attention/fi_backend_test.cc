#include "attention/fi_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/backend_for_test.h"

namespace minisgl {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

struct Prepared {
  std::unique_ptr<AttentionMetadata> owner;
  const FiMetadata& fi;
};

Prepared prepare(FiBackend& backend, const Batch& batch, Stream& stream) {
  auto metadata = backend.prepare_metadata(batch, stream);
  stream.synchronize();
  const auto& fi = dynamic_cast<const FiMetadata&>(*metadata);
  return {std::move(metadata), fi};
}

TEST(FiBackendTest, TheDrawnExample) {
  World world = drawn_example();
  world.batch.page_table = &world.table;
  CpuStream stream(2);
  FiBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  EXPECT_THAT(values_of(p.fi.qo_indptr), ElementsAre(0, 2, 11, 14));
  EXPECT_THAT(values_of(p.fi.kv_indptr), ElementsAre(0, 2, 5, 6));
  EXPECT_THAT(values_of(p.fi.kv_indices), ElementsAre(5, 2, 0, 7, 3, 4));
  EXPECT_THAT(values_of(p.fi.kv_last_page_len), ElementsAre(2, 1, 3));
  EXPECT_THAT(values_of(p.fi.plan.work_indptr), ElementsAre(0, 3, 6)) << "two workers";
  EXPECT_THAT(values_of(p.fi.plan.work_items), ElementsAre(1, 0, 0, 0, 1, -1,  //
                                                           2, 0, 0, 0, 1, -1,  //
                                                           0, 0, 0, 0, 1, -1,  //
                                                           1, 1, 0, 0, 1, -1,  //
                                                           2, 1, 0, 0, 1, -1,  //
                                                           0, 1, 0, 0, 1, -1));
  EXPECT_THAT(values_of(p.fi.plan.num_merges), ElementsAre(0));
}

TEST(FiBackendTest, IndicesAreTheRowsPagesOneRowAfterTheOther) {
  for (const std::int32_t page_size : {1, 4, 16}) {
    World world(page_size);
    world.batch.rows = {{RowId{2}, 0, 49}, {RowId{4}, 2, 16}, {RowId{1}, 6, 7}};
    world.pad();
    CpuStream stream(1);
    FiBackend backend(world.shape);
    const Prepared p = prepare(backend, world.batch, stream);
    const std::vector<std::int32_t> indptr = values_of(p.fi.kv_indptr);
    const std::vector<std::int32_t> indices = values_of(p.fi.kv_indices);
    const std::vector<std::int32_t> last = values_of(p.fi.kv_last_page_len);
    ASSERT_EQ(indices.size(), static_cast<std::size_t>(indptr.back()));
    for (std::size_t i = 0; i < world.batch.rows.size(); ++i) {
      const BatchRow& row = world.batch.rows[i];
      ASSERT_EQ((indptr[i + 1] - indptr[i] - 1) * page_size + last[i], row.device_len);
      for (std::int32_t key = 0; key < row.device_len; ++key)
        ASSERT_EQ(indices[indptr[i] + key / page_size] * page_size + key % page_size,
                  world.table.row(row.row)[key])
            << "row " << i << ", key " << key << ", page_size " << page_size;
    }
    EXPECT_EQ(indices.back(), world.num_pages - 1) << "padding reads the dummy page";
  }
}

TEST(FiBackendTest, ALongContextIsDealtToAllWorkersAndPlannedAnewForEveryStep) {
  AttentionShape shape = shape_with(16);
  shape.num_heads = 3;
  shape.num_kv_heads = 1;
  shape.max_seq_len_tokens = 6000;
  World world(shape);
  CpuStream stream(3);
  FiBackend backend(shape);
  world.batch.rows = {{RowId{0}, 5999, 6000}};
  const Prepared big = prepare(backend, world.batch, stream);
  const std::vector<std::int32_t> indptr = values_of(big.fi.plan.work_indptr);
  EXPECT_THAT(indptr, ElementsAre(0, 4, 8, 12)) << "twelve splits of 512 keys for three workers";
  EXPECT_THAT(values_of(big.fi.plan.num_merges), ElementsAre(1));
  world.batch.rows = {{RowId{0}, 99, 100}};
  const Prepared small = prepare(backend, world.batch, stream);
  EXPECT_THAT(values_of(small.fi.plan.work_indptr), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(values_of(small.fi.plan.num_merges), ElementsAre(0));
}

TEST(FiBackendTest, WhatIsCapturedIsRowsOfOneKeyAndRoomForTheLongest) {
  World world(16);
  CpuStream stream(2);
  FiBackend backend(world.shape);
  backend.init_capture_graph(std::vector<std::int32_t>{1, 4}, kMaxTokens);
  const auto& fi =
      dynamic_cast<const FiMetadata&>(backend.prepare_for_capture(/*batch_size=*/4, stream));
  stream.synchronize();
  EXPECT_THAT(values_of(fi.qo_indptr), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(values_of(fi.kv_indptr), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(values_of(fi.kv_last_page_len), Each(1));
  EXPECT_EQ(fi.kv_indices.dim(0), 4 * 13) << "200 tokens lie in 13 pages, the last one not full";
  EXPECT_EQ(values_of(fi.plan.work_indptr).back(), 4 * 2);
  EXPECT_GE(fi.plan.work_items.dim(0), 4 * 2 + 8 * 2);
  EXPECT_THAT(error_of([&] { backend.prepare_for_capture(3, stream); }),
              HasSubstr("fi has no graph buffers for 3 rows"));
}

}  // namespace
}  // namespace minisgl
