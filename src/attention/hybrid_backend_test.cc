#include "attention/hybrid_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/backend_for_test.h"

namespace minisgl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StrEq;

/// Remembers which rows it was given and marks the tokens that it computes.
class Recorder final : public AttentionBackend {
 public:
  Recorder(std::string name, float mark) : name_(std::move(name)), mark_(mark) {}
  std::string_view name() const override { return name_; }
  std::unique_ptr<AttentionMetadata> prepare_metadata(const Batch& batch, Stream&) override {
    lengths.clear();
    for (const BatchRow& row : batch.rows) lengths.push_back(row.device_len);
    num_rows = batch.num_rows;
    num_decode = batch.num_decode;
    auto metadata = std::make_unique<AttentionMetadata>();
    last = metadata.get();
    return metadata;
  }
  void forward(TensorView, std::int64_t, TensorView out, ForwardContext& ctx) override {
    EXPECT_EQ(ctx.metadata, last);
    EXPECT_EQ(&ctx.attention, this);
    for (std::int64_t i = 0; i < out.dim(0); ++i) out.as<float>()[i * out.stride(0)] = mark_;
  }

  std::vector<std::int32_t> lengths;
  std::int32_t num_rows = -1, num_decode = -1;
  const AttentionMetadata* last = nullptr;

 private:
  std::string name_;
  float mark_;
};

struct Hybrid {
  Recorder* prefill = new Recorder("p", 1);
  Recorder* decode = new Recorder("d", 2);
  HybridBackend backend{std::unique_ptr<AttentionBackend>(prefill),
                        std::unique_ptr<AttentionBackend>(decode)};
};

/// For each token, who computed it.
std::vector<float> marks(Hybrid& hybrid, const Batch& batch) {
  CpuStream stream(1);
  const auto metadata = hybrid.backend.prepare_metadata(batch, stream);
  ScratchArena scratch(64);
  const ForwardInputs inputs;
  ForwardContext ctx{stream, scratch, &inputs, hybrid.backend, metadata.get(), {}};
  std::vector<float> out(batch.num_tokens());
  const TensorView view(out.data(), {batch.num_tokens(), 1, 1}, DType::kF32);
  hybrid.backend.forward(view, 0, view, ctx);
  return out;
}

TEST(HybridBackendTest, AMixedBatchIsCutAfterItsDecodeRowsAndPaddingGoesWithTheExtendingRows) {
  Hybrid hybrid;
  Batch batch;
  batch.rows = {{RowId{0}, 9, 10}, {RowId{1}, 4, 5}, {RowId{2}, 3, 6}, {RowId{3}, 0, 1}};
  batch.num_rows = 3;
  batch.num_decode = 2;
  EXPECT_THAT(marks(hybrid, batch), ElementsAre(2, 2, 1, 1, 1, 1));
  EXPECT_THAT(hybrid.decode->lengths, ElementsAre(10, 5));
  EXPECT_EQ(hybrid.decode->num_rows, 2);
  EXPECT_EQ(hybrid.decode->num_decode, 2);
  EXPECT_THAT(hybrid.prefill->lengths, ElementsAre(6, 1));
  EXPECT_EQ(hybrid.prefill->num_rows, 1);
  EXPECT_EQ(hybrid.prefill->num_decode, 0);
}

TEST(HybridBackendTest, ADecodeStepGoesToTheSecondWithItsPadding) {
  Hybrid hybrid;
  Batch batch;
  batch.rows = {{RowId{0}, 9, 10}, {RowId{1}, 4, 5}, {RowId{3}, 0, 1}};
  batch.num_rows = batch.num_decode = 2;
  EXPECT_THAT(marks(hybrid, batch), ElementsAre(2, 2, 2));
  EXPECT_EQ(hybrid.prefill->num_rows, -1) << "never asked";
}

TEST(HybridBackendTest, APrefillStepGoesToTheFirst) {
  Hybrid hybrid;
  Batch batch;
  batch.rows = {{RowId{0}, 9, 12}, {RowId{3}, 0, 1}};
  batch.num_rows = 1;
  EXPECT_THAT(marks(hybrid, batch), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(hybrid.decode->num_rows, -1) << "never asked";
}

TEST(HybridBackendTest, ANameWithACommaIsTwoBackends) {
  testing::internal::CaptureStderr();
  const auto backend = make_attention_backend("fa,fi", shape_with(16));
  EXPECT_EQ(backend->name(), "fa,fi");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("Using hybrid attention backend: prefill=fa, decode=fi"));
}

TEST(HybridBackendTest, TheSameNameTwiceIsThatBackendAndAWarning) {
  testing::internal::CaptureStderr();
  const auto backend = make_attention_backend("fi,fi", shape_with(16));
  EXPECT_EQ(backend->name(), "fi");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the attention backends for prefill and decode are both fi"));
}

TEST(HybridBackendTest, OtherNamesAreRefused) {
  EXPECT_THAT(error_of([] { make_attention_backend("fa,fi,ref", shape_with(16)); }),
              StrEq("Only one comma is allowed in hybrid backend: \"fa,fi,ref\""));
  EXPECT_THAT(error_of([] { make_attention_backend("fa,flash", shape_with(16)); }),
              StrEq("unknown attention backend \"flash\"; known are auto, ref, fa, fi, trtllm, or "
                    "two of them as \"prefill,decode\""));
  EXPECT_THAT(error_of([] { make_attention_backend("fa,", shape_with(16)); }),
              HasSubstr("unknown attention backend \"\""));
}

}  // namespace
}  // namespace minisgl
