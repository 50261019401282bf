// The graph hooks of all backends: what is captured once gives, after every refresh, the results of
// the step's own arguments.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "attention/backend_for_test.h"
#include "testing/count_allocations.h"

namespace minisgl {
namespace {

using testing_util::Random;

constexpr std::int32_t kBatch = 4;

/// Copies, and remembers into which buffers; all but one that a test may name.
class Writer final : public CaptureWriter {
 public:
  void copy(std::string_view name, TensorView dst, TensorView src, Stream& stream) override {
    written.insert(std::string(name));
    if (name == skipped) return;
    const std::int64_t rows = src.rank() == 2 ? src.dim(0) : 1;
    const std::int64_t columns = rows == 0 ? 0 : src.numel() / rows;
    for (std::int64_t i = 0; i < rows; ++i)
      stream.copy(dst.as<std::int32_t>() + i * dst.stride(0),
                  src.as<std::int32_t>() + i * src.stride(0),
                  static_cast<std::size_t>(columns) * sizeof(std::int32_t));
  }
  std::set<std::string> written;
  std::string skipped;
};

class NoWriter final : public CaptureWriter {
 public:
  void copy(std::string_view, TensorView, TensorView, Stream&) override { ++copies; }
  int copies = 0;
};

AttentionShape long_shape() {
  AttentionShape shape = shape_with(16);
  shape.max_seq_len_tokens = 1300;  // not whole pages
  return shape;
}

/// 1 to 4 decode rows, padded to 4.
void fill_decode_batch(World& world, Random& random) {
  world.batch.rows.clear();
  const auto rows = static_cast<std::int32_t>(random.between(1, kBatch));
  for (std::int32_t row = 0; row < rows; ++row) {
    const auto length = static_cast<std::int32_t>(
        random.between(1, random.below(2) == 0 ? world.shape.max_seq_len_tokens : 60));
    world.batch.rows.push_back({RowId{row}, length - 1, length});
  }
  world.batch.num_rows = world.batch.num_decode = rows;
  while (static_cast<std::int32_t>(world.batch.rows.size()) < kBatch) world.pad();
}

class ReplayTest : public testing::TestWithParam<std::string> {
 protected:
  ReplayTest() : world_(long_shape()), backend_(make_attention_backend(GetParam(), world_.shape)) {
    backend_->init_capture_graph(std::vector<std::int32_t>{1, kBatch, kMaxRows},
                                 world_.shape.max_seq_len_tokens);
    for (const std::int32_t size : {kMaxRows, kBatch, 1})
      captured_[size] = &backend_->prepare_for_capture(size, stream_);
    stream_.synchronize();
  }

  World world_;
  CpuStream stream_{3};
  std::unique_ptr<AttentionBackend> backend_;
  std::map<std::int32_t, const AttentionMetadata*> captured_;
};

TEST_P(ReplayTest, ReplayingAStepGivesItsBitsAtUnchangedAddresses) {
  ASSERT_TRUE(backend_->supports_graphs());
  const std::vector<CapturedBuffer> before = backend_->captured_buffers(kBatch);
  std::map<std::string, std::vector<std::int32_t>> constants;
  std::set<std::string> refreshed;
  for (const CapturedBuffer& buffer : before) {
    if (buffer.content == CapturedContent::kConstant) {
      constants[buffer.name] = values_of(buffer.view);
    } else {
      refreshed.insert(buffer.name);
    }
  }
  Random random(3);
  for (int step = 0; step < 30; ++step) {
    fill_decode_batch(world_, random);
    const auto live = backend_->prepare_metadata(world_.batch, stream_);
    const std::vector<float> expected = attend_with(*backend_, *live, world_, step % 2, stream_);
    Writer writer;
    backend_->prepare_for_replay(kBatch, *live, writer, stream_);
    const std::vector<float> actual =
        attend_with(*backend_, *captured_[kBatch], world_, step % 2, stream_);
    for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << step;
    EXPECT_EQ(writer.written, refreshed);
  }
  const std::vector<CapturedBuffer> after = backend_->captured_buffers(kBatch);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].view.data, before[i].view.data) << after[i].name;
    if (after[i].content == CapturedContent::kConstant) {
      EXPECT_EQ(values_of(after[i].view), constants[after[i].name]) << after[i].name;
    }
  }
}

TEST_P(ReplayTest, SizesShareTheirMemoryAndStillGiveTheirOwnResults) {
  Random random(5);
  for (int step = 0; step < 10; ++step) {
    fill_decode_batch(world_, random);
    const std::int32_t size = step % 2 == 0 ? kBatch : kMaxRows;
    while (static_cast<std::int32_t>(world_.batch.rows.size()) < size) world_.pad();
    const auto live = backend_->prepare_metadata(world_.batch, stream_);
    const std::vector<float> expected = attend_with(*backend_, *live, world_, 0, stream_);
    Writer writer;
    backend_->prepare_for_replay(size, *live, writer, stream_);
    ASSERT_EQ(attend_with(*backend_, *captured_[size], world_, 0, stream_), expected) << step;
  }
}

TEST_P(ReplayTest, LeavingOutARefreshOfLengthsOrPagesGivesAnotherResult) {
  for (const CapturedBuffer& buffer : backend_->captured_buffers(kBatch)) {
    const std::string_view name = std::string_view(buffer.name).substr(buffer.name.find('.') + 1);
    if (name != "page_table" && name != "block_tables" && name != "kv_indices" &&
        name != "kv_indptr" && name != "kv_last_page_len" && name != "cache_seqlens" &&
        name != "seq_lens")
      continue;
    world_.batch.rows = {
        {RowId{0}, 36, 37}, {RowId{1}, 49, 50}, {RowId{2}, 4, 5}, {RowId{3}, 0, 1}};
    world_.batch.num_rows = world_.batch.num_decode = 4;
    Writer writer;
    auto live = backend_->prepare_metadata(world_.batch, stream_);
    backend_->prepare_for_replay(kBatch, *live, writer, stream_);
    stream_.synchronize();
    world_.batch.rows = {
        {RowId{4}, 30, 31}, {RowId{5}, 21, 22}, {RowId{0}, 17, 18}, {RowId{1}, 1, 2}};
    live = backend_->prepare_metadata(world_.batch, stream_);
    const std::vector<float> expected = attend_with(*backend_, *live, world_, 0, stream_);
    writer.skipped = buffer.name;
    backend_->prepare_for_replay(kBatch, *live, writer, stream_);
    EXPECT_NE(attend_with(*backend_, *captured_[kBatch], world_, 0, stream_), expected)
        << "without " << buffer.name;
  }
}

TEST_P(ReplayTest, PreparingAReplayAllocatesNothing) {
  Random random(7);
  fill_decode_batch(world_, random);
  const auto live = backend_->prepare_metadata(world_.batch, stream_);
  NoWriter writer;
  testing_util::AllocationCounter counter(/*own_thread=*/true);
  counter.start();
  backend_->prepare_for_replay(kBatch, *live, writer, stream_);
  EXPECT_EQ(counter.stop(), 0);
  EXPECT_GE(writer.copies, 2);
  stream_.synchronize();
}

TEST_P(ReplayTest, AStepThatDoesNotFitIsRefused) {
  world_.batch.rows = {{RowId{0}, 3, 4}, {RowId{1}, 3, 4}};
  world_.batch.num_rows = world_.batch.num_decode = 2;
  const auto live = backend_->prepare_metadata(world_.batch, stream_);
  NoWriter writer;
  EXPECT_THAT(
      error_of([&] { backend_->prepare_for_replay(kBatch, *live, writer, stream_); }),
      testing::HasSubstr("a step of 2 rows, 1 queries and up to 4 keys does not fit a graph "
                         "of 4 rows, one query and 1300 keys"));
  stream_.synchronize();
}

INSTANTIATE_TEST_SUITE_P(Backends, ReplayTest,
                         testing::Values("ref", "fa", "fi", "trtllm", "fa,fi", "fi,trtllm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

}  // namespace
}  // namespace minisgl
