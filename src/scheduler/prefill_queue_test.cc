#include "scheduler/prefill_queue.h"

#include <gtest/gtest.h>

#include <deque>

namespace minisgl {
namespace {

class PrefillQueueTest : public testing::Test {
 protected:
  Sequence& push(std::int32_t prompt_len, std::int32_t max_tokens) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.arrival = static_cast<std::int64_t>(sequences_.size());
    Request& request = sequence.request;
    request.id = {sequences_.size()};
    request.tokens.assign(static_cast<std::size_t>(prompt_len),
                          static_cast<TokenId>(sequences_.size()));
    request.prompt_len = prompt_len;
    request.max_device_len = prompt_len + max_tokens;
    queue_.push(sequence);
    return sequence;
  }
  /// Schedules, "launches", and returns the ends of the chunks by request id.
  std::vector<std::pair<std::uint64_t, std::int32_t>> schedule(std::int64_t budget,
                                                               std::int64_t reserved = 0) {
    std::vector<Sequence*> out;
    if (queue_.started() != nullptr) reserved += cache_.pages_to_come(queue_.started()->request);
    queue_.schedule(budget, reserved, cache_, rows_, out);
    std::vector<std::pair<std::uint64_t, std::int32_t>> chunks;
    for (Sequence* sequence : out) {
      Request* request = &sequence->request;
      cache_.allocate({&request, 1});
      chunks.emplace_back(request->id.value, request->device_len);
      request->complete_step();
    }
    return chunks;
  }

  using Chunks = std::vector<std::pair<std::uint64_t, std::int32_t>>;
  CacheManager cache_{{.num_pages = 100, .page_size = 1, .max_rows = 3, .max_seq_len = 100}};
  RowTable rows_{3};
  PrefillQueue queue_;
  std::deque<Sequence> sequences_;
};

TEST_F(PrefillQueueTest, AStartedPromptGoesOnFirstAndTheRestOfTheBudgetIsTheNextOnes) {
  push(25, 1);
  push(8, 1);
  EXPECT_EQ(schedule(10), (Chunks{{1, 10}}));
  ASSERT_NE(queue_.started(), nullptr);
  EXPECT_EQ(schedule(10), (Chunks{{1, 20}}));
  EXPECT_EQ(schedule(10), (Chunks{{1, 25}, {2, 5}}));
  EXPECT_EQ(queue_.started()->request.id, RequestId{2});
  EXPECT_EQ(schedule(10), (Chunks{{2, 8}}));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(PrefillQueueTest, NobodyIsAdmittedWithoutARow) {
  for (int i = 0; i < 4; ++i) push(2, 1);
  EXPECT_EQ(schedule(100).size(), 3U);
  EXPECT_EQ(schedule(100).size(), 0U);
  rows_.free(RowId{1});
  EXPECT_EQ(schedule(100), (Chunks{{4, 2}}));
}

TEST_F(PrefillQueueTest, PagesReservedForOthersAreNotGivenAwayAndARefusalTakesNoRow) {
  push(50, 20);  // 69 pages
  push(20, 20);  // 39
  EXPECT_EQ(schedule(100, /*reserved=*/32), (Chunks{}));
  EXPECT_EQ(rows_.num_free(), 3);
  EXPECT_EQ(schedule(100, /*reserved=*/31), (Chunks{{1, 50}}));
  EXPECT_EQ(schedule(100, cache_.pages_to_come(sequences_[0].request)), (Chunks{}));
  cache_.release(sequences_[0].request);
  EXPECT_EQ(schedule(100), (Chunks{{2, 20}}));
}

TEST_F(PrefillQueueTest, ARemovedSequenceIsSkipped) {
  Sequence& first = push(5, 1);
  push(5, 1);
  queue_.remove(first);
  queue_.remove(first);
  EXPECT_EQ(schedule(100), (Chunks{{2, 5}}));
}

}  // namespace
}  // namespace minisgl
