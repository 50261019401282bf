#include "attention/trtllm_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/backend_for_test.h"

namespace minisgl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Prepared {
  std::unique_ptr<AttentionMetadata> owner;
  const TrtllmMetadata& trtllm;
};

Prepared prepare(TrtllmBackend& backend, const Batch& batch, Stream& stream) {
  auto metadata = backend.prepare_metadata(batch, stream);
  stream.synchronize();
  const auto& trtllm = dynamic_cast<const TrtllmMetadata&>(*metadata);
  return {std::move(metadata), trtllm};
}

TEST(TrtllmBackendTest, BlockTablesHoldTheRowsPages) {
  World world(16);
  world.batch.rows = {{RowId{2}, 3, 49}, {RowId{4}, 2, 16}};
  world.pad();
  CpuStream stream(1);
  TrtllmBackend backend(world.shape);
  const Prepared p = prepare(backend, world.batch, stream);
  ASSERT_EQ(p.trtllm.block_tables.shape, (Shape{3, 4}));
  const std::vector<std::int32_t> pages = values_of(p.trtllm.block_tables);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pages[i], world.table.row(RowId{2})[16 * i] / 16);
  EXPECT_EQ(pages[4], world.table.row(RowId{4})[0] / 16);
  EXPECT_EQ(pages[8], world.num_pages - 1) << "padding reads the dummy page";
  EXPECT_THAT(values_of(p.trtllm.seq_lens), ElementsAre(49, 16, 1));
  EXPECT_THAT(values_of(p.trtllm.cum_seq_lens_kv), ElementsAre(0, 49, 65, 66));
  EXPECT_THAT(values_of(p.trtllm.cum_seq_lens_q), ElementsAre(0, 46, 60, 61));
  EXPECT_EQ(p.trtllm.max_q_len, 46);
  EXPECT_EQ(p.trtllm.max_kv_len, 49);
}

TEST(TrtllmBackendTest, OffsetsOfQueriesComeInThreeWays) {
  World world(32);
  CpuStream stream(1);
  TrtllmBackend backend(world.shape);
  world.batch.rows = {{RowId{2}, 48, 49}, {RowId{4}, 0, 1}};
  const Prepared one_each = prepare(backend, world.batch, stream);
  EXPECT_THAT(values_of(one_each.trtllm.cum_seq_lens_q), ElementsAre(0, 1, 2));
  world.batch.rows = {{RowId{2}, 0, 49}, {RowId{4}, 0, 1}};
  const Prepared no_prefix = prepare(backend, world.batch, stream);
  EXPECT_EQ(no_prefix.trtllm.cum_seq_lens_q.data, no_prefix.trtllm.cum_seq_lens_kv.data);
  world.batch.rows = {{RowId{2}, 40, 49}, {RowId{4}, 0, 1}};
  const Prepared extend = prepare(backend, world.batch, stream);
  EXPECT_NE(extend.trtllm.cum_seq_lens_q.data, extend.trtllm.cum_seq_lens_kv.data);
  EXPECT_THAT(values_of(extend.trtllm.cum_seq_lens_q), ElementsAre(0, 9, 10));
}

TEST(TrtllmBackendTest, OtherPageSizesAreRefusedByTheBackendAndReplacedBefore) {
  EXPECT_THAT(error_of([] { TrtllmBackend backend(shape_with(4)); }),
              HasSubstr("trtllm needs pages of 16, 32 or 64 tokens, not 4"));
  for (const std::int32_t fits : {16, 32, 64}) EXPECT_EQ(supported_page_size("trtllm", fits), fits);
  testing::internal::CaptureStderr();
  EXPECT_EQ(supported_page_size("trtllm", 1), 64);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("trtllm needs pages of 16, 32 or 64 tokens: using 64, not 1"));
  EXPECT_EQ(supported_page_size("trtllm,fi", 128), 64);
  EXPECT_EQ(supported_page_size("fa,trtllm", 4), 64);
  EXPECT_EQ(supported_page_size("fa,fi", 4), 4);
  EXPECT_EQ(supported_page_size("auto", 1), 1);
}

}  // namespace
}  // namespace minisgl
