// The fixed buffers of backends: what a captured step computes from them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "attention/backend.h"
#include "attention/fa_backend.h"
#include "attention/ref_backend.h"
#include "base/math.h"
#include "kvcache/kv_pool.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using testing::HasSubstr;
using testing_util::Random;

constexpr std::int32_t kMaxRows = 4;
constexpr std::int64_t kMaxTokens = 1100;  // no multiple of any page size, and three splits long
constexpr std::int32_t kPages = 4 * kMaxTokens;

struct Case {
  std::string backend;
  std::int32_t page_size;
};
std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.backend + "_pages_of_" + std::to_string(info.param.page_size);
}

/// Copies at once what capture.h says.
struct PlainWriter final : CaptureWriter {
  void copy(std::string_view name, TensorView dst, TensorView src, Stream& stream) override {
    written.emplace_back(name);
    const std::int64_t rows = src.rank() == 2 ? src.dim(0) : 1;
    const std::int64_t columns = src.dim(-1);
    for (std::int64_t i = 0; i < rows; ++i)
      stream.copy(dst.as<std::int32_t>() + (src.rank() == 2 ? i * dst.stride(0) : 0),
                  src.as<std::int32_t>() + (src.rank() == 2 ? i * src.stride(0) : 0),
                  static_cast<std::size_t>(columns) * sizeof(std::int32_t));
  }
  std::vector<std::string> written;
};

/// A pool of random keys, a table of random pages, and a backend with graphs of 1, 2 and 4 rows.
class GraphHooksTest : public testing::TestWithParam<Case> {
 protected:
  GraphHooksTest()
      : shape_{.num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 16,
               .scale = 0.25F,
               .page_size = GetParam().page_size,
               .max_seq_len_tokens = kMaxTokens,
               .max_rows = kMaxRows,
               .device = kCpu},
        table_(kMaxRows, kMaxTokens, kPages / shape_.page_size * shape_.page_size),
        pool_({.num_layers = 1,
               .num_kv_heads = 2,
               .head_dim = 16,
               .num_pages = kPages / shape_.page_size,
               .page_size = shape_.page_size}),
        backend_(make_attention_backend(GetParam().backend, shape_)) {
    const KvView kv = pool_.view().layer(0);
    const auto values = testing_util::uniform(2 * kv.num_slots * kv.slot_stride, 1);
    std::copy_n(values.begin(), values.size() / 2, reinterpret_cast<float*>(kv.k));
    std::copy(values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end(),
              reinterpret_cast<float*>(kv.v));
    Random random(2);
    for (std::int32_t row = 0; row < kMaxRows; ++row)
      for (std::int64_t i = 0; i < kMaxTokens; ++i) {
        const auto at = static_cast<std::size_t>(i);
        table_.row(RowId{row})[at] =
            i % shape_.page_size == 0
                ? static_cast<TokenLoc>(random.below(kPages / shape_.page_size) * shape_.page_size)
                : table_.row(RowId{row})[at - 1] + 1;
      }
    backend_->init_capture_graph(kSizes, kMaxTokens);
    for (const std::int32_t size : {4, 2, 1})
      captured_[size] = &backend_->prepare_for_capture(size, stream_);
    stream_.synchronize();
  }

  /// One token for each row, whose lengths are given; more rows are padding.
  Batch batch_of(const std::vector<std::int32_t>& lengths, std::int32_t padded) const {
    Batch batch;
    batch.page_table = &table_;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      batch.rows.push_back({RowId{static_cast<std::int32_t>(i)}, lengths[i] - 1, lengths[i]});
    batch.num_rows = batch.num_decode = static_cast<std::int32_t>(lengths.size());
    batch.rows.resize(static_cast<std::size_t>(padded), {table_.dummy_row(), 0, 1});
    return batch;
  }

  std::vector<float> attend(const AttentionMetadata& metadata, std::int32_t rows) {
    const std::vector<float> q = testing_util::uniform(rows * 64, 3);
    std::vector<float> out(q.size());
    ForwardContext ctx{stream_, scratch_, nullptr, *backend_, &metadata, pool_.view()};
    auto* data = const_cast<float*>(q.data());
    backend_->forward(TensorView(data, {rows, 4, 16}, DType::kF32), 0,
                      TensorView(out.data(), {rows, 4, 16}, DType::kF32), ctx);
    stream_.synchronize();
    return out;
  }

  static constexpr std::int32_t kSizes[] = {1, 2, 4};
  CpuStream stream_{2};
  ScratchArena scratch_{16 << 20};
  AttentionShape shape_;
  PageTable table_;
  KvPool pool_;
  std::unique_ptr<AttentionBackend> backend_;
  std::map<std::int32_t, const AttentionMetadata*> captured_;
};

TEST_P(GraphHooksTest, CapturedMetadataGivesTheBitsOfTheEagerStepAsLengthsShrinkAndGrow) {
  // Shorter steps leave the pages of longer ones in the columns behind their own.
  const std::vector<std::vector<std::int32_t>> steps = {
      {1100, 1099, 513}, {3, 1, 2}, {600}, {17, 64}, {1, 1, 1, 1}, {512, 1025, 15, 1100}, {1}};
  for (const auto& lengths : steps) {
    const auto rows = static_cast<std::int32_t>(lengths.size());
    const std::int32_t padded = rows == 3 ? 4 : rows;
    SCOPED_TRACE(testing::PrintToString(lengths));
    const auto live = backend_->prepare_metadata(batch_of(lengths, padded), stream_);
    PlainWriter writer;
    backend_->prepare_for_replay(padded, *live, writer, stream_);
    const std::vector<float> eager = attend(*live, padded);
    const std::vector<float> replayed = attend(*captured_[padded], padded);
    ASSERT_EQ(std::memcmp(eager.data(), replayed.data(), eager.size() * sizeof(float)), 0);
  }
}

TEST_P(GraphHooksTest, EveryRefreshedBufferIsWrittenByItsNameAndNoConstantIs) {
  const auto live = backend_->prepare_metadata(batch_of({5, 6}, 2), stream_);
  PlainWriter writer;
  backend_->prepare_for_replay(2, *live, writer, stream_);
  stream_.synchronize();
  std::vector<std::string> refreshed;
  for (const CapturedBuffer& buffer : backend_->captured_buffers(2))
    if (buffer.content == CapturedContent::kRefreshed) refreshed.push_back(buffer.name);
  EXPECT_THAT(writer.written, testing::UnorderedElementsAreArray(refreshed));
}

TEST_P(GraphHooksTest, AddressesStayThroughAHundredReplays) {
  const auto addresses = [&] {
    std::vector<const void*> all;
    for (const std::int32_t size : kSizes)
      for (const CapturedBuffer& buffer : backend_->captured_buffers(size))
        all.push_back(buffer.view.data);
    return all;
  };
  const auto before = addresses();
  Random random(5);
  for (int i = 0; i < 100; ++i) {
    const std::int32_t size = kSizes[random.below(3)];
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(size));
    for (std::int32_t& length : lengths)
      length = static_cast<std::int32_t>(random.between(1, kMaxTokens));
    const auto live = backend_->prepare_metadata(batch_of(lengths, size), stream_);
    PlainWriter writer;
    backend_->prepare_for_replay(size, *live, writer, stream_);
    stream_.synchronize();
  }
  EXPECT_EQ(before, addresses());
}

TEST_P(GraphHooksTest, TheCapturedPageTableHoldsTheLongestContextWhateverThePageSize) {
  const std::int64_t unit = GetParam().backend == "ref" ? 1 : shape_.page_size;
  const std::int64_t columns = ceil_div(kMaxTokens, unit);  // rounded up, not down
  int found = 0;
  for (const CapturedBuffer& buffer : backend_->captured_buffers(4)) {
    const std::string name = buffer.name.substr(buffer.name.find('.') + 1);
    if (name == "page_table" || name == "block_tables") {
      EXPECT_EQ(buffer.view.shape, Shape({4, columns}));
    } else if (name == "kv_indices") {
      EXPECT_EQ(buffer.view.shape, Shape({4 * columns}));
    } else {
      continue;
    }
    ++found;
  }
  EXPECT_EQ(found, 1);
}

TEST_P(GraphHooksTest, WhatWasNotAnnouncedIsAnError) {
  PlainWriter writer;
  const auto live = backend_->prepare_metadata(batch_of({5, 6}, 2), stream_);
  const auto prefill = [&] {
    Batch batch = batch_of({5, 6}, 2);
    batch.rows[0].cached_len = 2;
    return backend_->prepare_metadata(batch, stream_);
  }();
  struct Other final : AttentionMetadata {};
  const auto error = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error([&] { backend_->prepare_for_capture(3, stream_); }),
              HasSubstr("has no graph buffers for 3 rows"));
  EXPECT_THAT(
      error([&] { backend_->prepare_for_replay(4, *live, writer, stream_); }),
      HasSubstr("a step of 2 rows, 1 queries and up to 6 keys does not fit a graph of 4 rows"));
  EXPECT_THAT(error([&] { backend_->prepare_for_replay(2, *prefill, writer, stream_); }),
              HasSubstr("3 queries"));
  EXPECT_THAT(error([&] { backend_->prepare_for_replay(2, Other(), writer, stream_); }),
              HasSubstr("made by another backend than " + GetParam().backend));
  stream_.synchronize();
}

INSTANTIATE_TEST_SUITE_P(Backends, GraphHooksTest,
                         testing::Values(Case{"fa", 1}, Case{"fa", 16}, Case{"fa", 64},
                                         Case{"ref", 1}, Case{"ref", 16}, Case{"fi", 1},
                                         Case{"fi", 4}, Case{"fi", 16}, Case{"trtllm", 16},
                                         Case{"trtllm", 32}, Case{"trtllm", 64}),
                         name_of);

}  // namespace
}  // namespace minisgl
