// The backends on a GPU against its plain one, on many random batches, eager and in graphs. Without
// a GPU every test is skipped.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/backend_for_test.h"
#include "attention/cuda/tiles.h"
#include "kernels/cuda/flashinfer/ragged.h"
#include "kernels/cuda/flashinfer/xqa.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"
#include "testing/gpu.h"

namespace minisgl {
namespace {

using testing_util::copy_to;
using testing_util::Random;

constexpr std::int64_t kLongest = 1300;

AttentionShape gpu_shape(std::int32_t page_size, std::int32_t head_dim, std::int32_t kv_heads,
                         std::int32_t group) {
  AttentionShape shape = shape_with(page_size);
  shape.num_kv_heads = kv_heads;
  shape.num_heads = kv_heads * group;
  shape.head_dim = head_dim;
  shape.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  shape.max_seq_len_tokens = kLongest;
  shape.device = kGpu;
  return shape;
}

/// Decode rows, then extending rows, then padding; each kind may be missing.
void fill_batch(World& world, Random& random) {
  Batch& batch = world.batch;
  batch.rows.clear();
  const auto rows = static_cast<std::int32_t>(random.between(1, kMaxRows - 1));
  const std::int64_t kind = random.below(4);
  batch.num_decode = kind == 0   ? rows
                     : kind == 1 ? 0
                                 : static_cast<std::int32_t>(random.below(rows + 1));
  for (std::int32_t row = 0; row < rows; ++row) {
    const auto length = static_cast<std::int32_t>(
        random.below(4) == 0 ? 64 * random.between(1, 19) + random.between(-1, 1)
                             : random.between(1, random.below(3) == 0 ? kLongest : 200));
    const auto extend =
        row < batch.num_decode
            ? 1
            : static_cast<std::int32_t>(random.below(2) == 0 ? length : random.between(1, length));
    batch.rows.push_back({RowId{row}, length - extend, length});
  }
  batch.num_rows = rows;
  while (random.below(3) == 0 && static_cast<std::int32_t>(batch.rows.size()) < kMaxRows)
    world.pad();
}

class Writer final : public CaptureWriter {
 public:
  void copy(std::string_view /*name*/, TensorView dst, TensorView src, Stream& stream) override {
    const std::int64_t rows = src.rank() == 2 ? src.dim(0) : 1;
    const std::int64_t columns = rows == 0 ? 0 : src.numel() / rows;
    for (std::int64_t i = 0; i < rows; ++i)
      stream.copy(dst.as<std::int32_t>() + i * dst.stride(0),
                  src.as<std::int32_t>() + i * src.stride(0),
                  static_cast<std::size_t>(columns) * sizeof(std::int32_t));
  }
};

/// A world of which queries, keys and values lie on the GPU.
class GpuWorld {
 public:
  GpuWorld(const AttentionShape& shape, Stream& stream)
      : world(shape, shape.kv_dtype), stream_(stream) {
    const KvCacheView kv = world.kv();
    const std::int64_t bytes = 2 * kv.layer_bytes * World::kNumLayers;
    pool_ = copy_to(TensorView(kv.first.k, {bytes}, DType::kU8), kGpu, stream);
  }

  KvCacheView kv() {
    KvCacheView view = world.kv();
    const std::ptrdiff_t between = view.first.v - view.first.k;
    view.first.k = pool_.view().data;
    view.first.v = pool_.view().data + between;
    return view;
  }

  /// New queries for the batch.
  void draw_queries(std::uint64_t seed) {
    const std::vector<float> numbers = testing_util::uniform(shape().numel(), seed);
    Tensor host(shape(), DType::kBF16);
    for (std::int64_t i = 0; i < shape().numel(); ++i)
      host.view().as<BFloat16>()[i] = to_bf16(3 * numbers[static_cast<std::size_t>(i)]);
    q_ = copy_to(host, kGpu, stream_);
  }
  Shape shape() const {
    return {world.batch.num_tokens(), world.shape.num_heads, world.shape.head_dim};
  }

  /// Enqueues a step of `backend`; its output is `out`.
  void enqueue(AttentionBackend& backend, const AttentionMetadata& metadata, std::int64_t layer,
               const Tensor& out, ScratchArena& scratch) {
    ForwardContext ctx{stream_, scratch, &inputs_, backend, &metadata, kv()};
    backend.forward(q_, layer, out, ctx);
  }

  ScratchArena scratch_for(AttentionBackend& backend, const AttentionMetadata& metadata) {
    ScratchArena plan;
    const auto dry = cuda::make_dry_stream(kGpu);
    ForwardContext ctx{*dry, plan, &inputs_, backend, &metadata, kv()};
    backend.forward(q_, 0, TensorView(nullptr, shape(), DType::kBF16, kGpu), ctx);
    return ScratchArena(plan.peak_bytes(), kGpu);
  }

  std::vector<float> attend(AttentionBackend& backend, std::int64_t layer) {
    const auto metadata = backend.prepare_metadata(world.batch, stream_);
    const Tensor out = poisoned();
    ScratchArena scratch = scratch_for(backend, *metadata);
    enqueue(backend, *metadata, layer, out, scratch);
    return numbers_of(out);
  }

  Tensor poisoned() const {
    Tensor host(shape(), DType::kBF16);
    std::fill_n(host.view().data, host.view().bytes(), std::byte{0xFF});
    return copy_to(host, kGpu, stream_);
  }
  std::vector<float> numbers_of(const Tensor& tensor) const {
    const Tensor host = copy_to(tensor, kCpu, stream_);
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < host.view().numel(); ++i)
      numbers.push_back(to_f32(host.view().as<BFloat16>()[i]));
    return numbers;
  }

  World world;

 private:
  Stream& stream_;
  Tensor pool_, q_;
  ForwardInputs inputs_;
};

void expect_near(const std::vector<float>& found, const std::vector<float>& expected,
                 double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_LE(std::abs(found[i] - expected[i]), tolerance) << "element " << i;
}

std::vector<std::string> names(std::int32_t page_size) {
  std::vector<std::string> all = {"fa"};
  if (kernels::gpu::ragged_attention_built()) all.insert(all.end(), {"fi", "fa,fi", "fi,fa"});
  if (kernels::gpu::xqa_built() && page_size >= 16 && page_size <= 64)
    all.insert(all.end(), {"trtllm", "fi,trtllm"});
  return all;
}

/// XQA rounds parts of a result to bf16 before it adds them up.
double tolerance_of(std::string_view name) {
  return name.find("trtllm") == std::string_view::npos ? 0.012 : 0.02;
}

class GpuBackendsTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = cuda::make_stream(kGpu);
  }
  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuBackendsTest, AllAreNearThePlainOneOnAThousandRandomBatches) {
  Random random(9);
  int batches = 0;
  for (int round = 0; round < 25; ++round) {
    constexpr std::int32_t kPages[] = {1, 16, 32, 64, 256};
    constexpr std::int32_t kGroups[] = {1, 2, 3, 4, 5, 7, 8};
    GpuWorld gpu(
        gpu_shape(kPages[random.below(5)], round % 3 == 0 ? 64 : 128,
                  static_cast<std::int32_t>(random.between(1, 2)), kGroups[random.below(7)]),
        *stream_);
    const auto plain = make_attention_backend("ref", gpu.world.shape);
    std::vector<std::unique_ptr<AttentionBackend>> backends;
    for (const std::string& name : names(gpu.world.shape.page_size))
      backends.push_back(make_attention_backend(name, gpu.world.shape));
    for (int trial = 0; trial < 40; ++trial, ++batches) {
      fill_batch(gpu.world, random);
      gpu.draw_queries(static_cast<std::uint64_t>(batches));
      const std::vector<float> expected = gpu.attend(*plain, trial % 2);
      for (const auto& backend : backends) {
        std::string rows = std::to_string(gpu.world.batch.num_decode) + " decode;";
        for (const BatchRow& row : gpu.world.batch.rows)
          rows += " " + std::to_string(row.extend_len()) + "/" + std::to_string(row.device_len);
        SCOPED_TRACE(std::string(backend->name()) + ", round " + std::to_string(round) +
                     ", pages of " + std::to_string(gpu.world.shape.page_size) + ", heads " +
                     std::to_string(gpu.world.shape.num_heads) + "/" +
                     std::to_string(gpu.world.shape.num_kv_heads) + " of " +
                     std::to_string(gpu.world.shape.head_dim) + ", rows " + rows);
        expect_near(gpu.attend(*backend, trial % 2), expected, tolerance_of(backend->name()));
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(batches, 1000);
}

TEST_F(GpuBackendsTest, AReplayedGraphGivesTheBitsOfEagerSteps) {
  Random random(3);
  constexpr std::int32_t kBatch = 4;
  struct Kind {
    std::int32_t page_size, group;
    DType kv_dtype = DType::kBF16;
  };
  for (const Kind kind :
       {Kind{16, 2}, Kind{16, 5}, Kind{32, 3}, Kind{64, 8}, Kind{64, 4, DType::kF8E4M3}}) {
    for (const std::string& name :
         kind.kv_dtype == DType::kBF16 ? names(kind.page_size) : std::vector<std::string>{"fa"}) {
      SCOPED_TRACE(name + ", pages of " + std::to_string(kind.page_size) + ", group " +
                   std::to_string(kind.group));
      AttentionShape shape = gpu_shape(kind.page_size, 128, 2, kind.group);
      shape.kv_dtype = kind.kv_dtype;
      GpuWorld gpu(shape, *stream_);
      const auto backend = make_attention_backend(name, gpu.world.shape);
      backend->init_capture_graph(std::vector<std::int32_t>{kBatch}, kLongest);
      const AttentionMetadata& fixed = backend->prepare_for_capture(kBatch, *stream_);
      gpu.world.batch.rows.assign(kBatch, {gpu.world.table.dummy_row(), 0, 1});
      gpu.draw_queries(1);
      const Tensor out = gpu.poisoned();
      ScratchArena scratch = gpu.scratch_for(*backend, fixed);
      gpu.enqueue(*backend, fixed, 0, out, scratch);  // what is done only once
      stream_->synchronize();
      // Asked for each time: copies that wait are enqueued before what is done with it.
      const auto handle = [&] { return cuda::as_cuda(*stream_).handle(); };
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      cuda::check_cuda(cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal),
                       "capture");
      gpu.enqueue(*backend, fixed, 0, out, scratch);
      cuda::check_cuda(cudaStreamEndCapture(handle(), &graph), "capture");
      cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
      for (int step = 0; step < 40; ++step) {
        gpu.world.batch.rows.clear();
        const auto rows = static_cast<std::int32_t>(random.between(1, kBatch));
        for (std::int32_t row = 0; row < rows; ++row) {
          const auto length =
              static_cast<std::int32_t>(random.between(1, random.below(2) == 0 ? kLongest : 60));
          gpu.world.batch.rows.push_back({RowId{row}, length - 1, length});
        }
        gpu.world.batch.num_rows = gpu.world.batch.num_decode = rows;
        while (static_cast<std::int32_t>(gpu.world.batch.rows.size()) < kBatch) gpu.world.pad();
        const auto live = backend->prepare_metadata(gpu.world.batch, *stream_);
        const Tensor eager = gpu.poisoned();
        gpu.enqueue(*backend, *live, 0, eager, scratch);
        Writer writer;
        backend->prepare_for_replay(kBatch, *live, writer, *stream_);
        cuda::check_cuda(cudaGraphLaunch(executable, handle()), "launch");
        ASSERT_EQ(gpu.numbers_of(out), gpu.numbers_of(eager)) << "step " << step;
      }
      cudaGraphExecDestroy(executable);
      cudaGraphDestroy(graph);
    }
  }
}

TEST_F(GpuBackendsTest, AnFp8CacheIsReadAsThePlainOneReadsIt) {
  Random random(11);
  for (int round = 0; round < 12; ++round) {
    constexpr std::int32_t kPages[] = {1, 16, 64, 256};
    AttentionShape shape = gpu_shape(kPages[round % 4], round % 3 == 0 ? 64 : 128, 2,
                                     static_cast<std::int32_t>(random.between(1, 8)));
    shape.kv_dtype = DType::kF8E4M3;
    GpuWorld gpu(shape, *stream_);
    const auto plain = make_attention_backend("ref", shape);
    const auto fa = make_attention_backend("fa", shape);
    for (int trial = 0; trial < 20; ++trial) {
      fill_batch(gpu.world, random);
      gpu.draw_queries(static_cast<std::uint64_t>(trial));
      SCOPED_TRACE("round " + std::to_string(round) + ", trial " + std::to_string(trial));
      expect_near(gpu.attend(*fa, trial % 2), gpu.attend(*plain, trial % 2), 0.012);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuBackendsTest, AnFp8CacheIsRefusedByBackendsThatCannotReadIt) {
  AttentionShape shape = gpu_shape(16, 128, 2, 2);
  shape.kv_dtype = DType::kF8E4M3;
  if (kernels::gpu::ragged_attention_built()) {
    EXPECT_THAT(error_of([&] { make_attention_backend("fa,fi", shape); }),
                testing::HasSubstr("fi computes in bf16 on a GPU, with keys and values alike, not "
                                   "in bf16 with those of fp8_e4m3; use fa"));
  }
  if (kernels::gpu::xqa_built()) {
    EXPECT_THAT(error_of([&] { make_attention_backend("trtllm", shape); }),
                testing::HasSubstr("in bf16 with those of fp8_e4m3; use fa"));
  }
}

TEST_F(GpuBackendsTest, WhatFiCannotDoIsRefusedWithWhatToUseInstead) {
  if (!kernels::gpu::ragged_attention_built()) GTEST_SKIP() << "this build has no fi";
  AttentionShape shape = gpu_shape(16, 96, 2, 2);
  EXPECT_THAT(error_of([&] { make_attention_backend("fi", shape); }),
              testing::HasSubstr("heads of 64 or 128 numbers on a GPU, not of 96; use fa"));
  shape = gpu_shape(16, 128, 2, 2);
  shape.sliding_window = 50;
  EXPECT_THAT(error_of([&] { make_attention_backend("fa,fi", shape); }),
              testing::HasSubstr("fi has no sliding windows on a GPU; use fa"));
  shape.sliding_window = 0;
  shape.softcap = 2;
  EXPECT_THAT(error_of([&] { make_attention_backend("fi", shape); }),
              testing::HasSubstr("fi caps no logits on a GPU; use fa"));
}

TEST_F(GpuBackendsTest, WhatTrtllmCannotDoIsRefusedWithWhatToUseInstead) {
  if (!kernels::gpu::xqa_built()) GTEST_SKIP() << "this build has no trtllm";
  const auto refused = [](const AttentionShape& shape) {
    return error_of([&] { make_attention_backend("trtllm", shape); });
  };
  AttentionShape shape = gpu_shape(16, 96, 2, 2);
  EXPECT_THAT(refused(shape), testing::HasSubstr("heads of 64 or 128 numbers on a GPU, not of 96"));
  EXPECT_THAT(refused(gpu_shape(16, 128, 1, 9)),
              testing::HasSubstr("8 query heads to a KV head on a GPU, not 9; use fa"));
  EXPECT_THAT(refused(gpu_shape(256, 128, 1, 2)), testing::HasSubstr("16, 32 or 64 tokens"));
  shape = gpu_shape(16, 128, 2, 2);
  shape.layer_windows = {0, 50};
  EXPECT_THAT(refused(shape), testing::HasSubstr("trtllm has no sliding windows on a GPU; use fa"));
  shape = gpu_shape(16, 128, 2, 2);
  shape.softcap = 2;
  EXPECT_THAT(refused(shape), testing::HasSubstr("trtllm caps no logits on a GPU; use fa"));
}

TEST_F(GpuBackendsTest, TrtllmSaysWhichKernelsItIsOnAGpu) {
  if (!kernels::gpu::xqa_built()) GTEST_SKIP() << "this build has no trtllm";
  testing::internal::CaptureStderr();
  make_attention_backend("trtllm", gpu_shape(32, 64, 3, 3));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("decode steps with XQA and, on this GPU, prompts with fa's"));
}

}  // namespace
}  // namespace minisgl
