#include "scheduler/step.h"

#include <gtest/gtest.h>

namespace minisgl {
namespace {

Sequence sequence(std::uint64_t id, std::int32_t row, std::vector<TokenId> tokens,
                  std::int32_t cached, std::int32_t device) {
  Sequence result;
  result.request.id = {id};
  result.request.row = {row};
  result.request.prompt_len = 4;
  result.request.tokens = std::move(tokens);
  result.request.cached_len = cached;
  result.request.device_len = device;
  return result;
}

TEST(StepTest, DecodeRowsComeFirstWithoutIdsAndAChunkInsideItsPromptIsNotSampled) {
  const PageTable table(/*max_rows=*/4, /*max_seq_len_tokens=*/32, /*dummy_loc=*/99);
  Sequence decoding = sequence(1, 2, {1, 2, 3, 4}, 4, 5);  // its first token is on the device
  Sequence whole = sequence(2, 0, {11, 12, 13, 14}, 0, 4);
  Sequence cached = sequence(3, 1, {21, 22, 23, 24}, 3, 4);  // one token left: not a decode row
  Sequence chunk = sequence(4, 3, {31, 32, 33, 34}, 0, 2);
  Step step;
  step.fill({&decoding}, {&whole, &cached, &chunk}, table);

  const Batch& batch = step.batch;
  EXPECT_EQ(batch.num_rows, 4);
  EXPECT_EQ(batch.num_decode, 1);
  EXPECT_FALSE(batch.is_decode());
  EXPECT_EQ(batch.token_ids, (std::vector<TokenId>{-1, 11, 12, 13, 14, 24, 31, 32}));
  ASSERT_EQ(batch.samples.size(), 3U);
  EXPECT_EQ(batch.samples[0].batch_row, 0);
  EXPECT_EQ(batch.samples[0].position, 1);
  EXPECT_EQ(batch.samples[1].request, RequestId{2});
  EXPECT_EQ(batch.samples[1].position, 0);
  EXPECT_EQ(batch.samples[2].batch_row, 2);
  EXPECT_EQ(batch.rows[3].row, RowId{3});
  EXPECT_EQ(batch.rows[3].extend_len(), 2);
  EXPECT_EQ(step.sequences, (std::vector<Sequence*>{&decoding, &whole, &cached, &chunk}));
}

TEST(StepTest, NothingOfTheLastStepIsLeftWhenItIsFilledAgain) {
  const PageTable table(4, 32, 99);
  Sequence decoding = sequence(1, 2, {1, 2, 3, 4}, 4, 5);
  Step step;
  step.fill({&decoding, &decoding}, {}, table);
  step.batch.rows.push_back({table.dummy_row(), 0, 1});  // as an engine pads it
  step.batch.slot = 1;
  step.fill({&decoding}, {}, table);
  EXPECT_EQ(step.batch.rows.size(), 1U);
  EXPECT_EQ(step.batch.token_ids.size(), 1U);
  EXPECT_EQ(step.batch.samples.size(), 1U);
  EXPECT_EQ(step.batch.slot, -1);
  EXPECT_TRUE(step.batch.is_decode());
}

}  // namespace
}  // namespace minisgl
