// Products by Hopper's own instructions against the plain one in kernels/ref/. Skipped without such
// a GPU.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/flashinfer/hopper_product.h"
#include "kernels/ref/linear.h"
#include "kernels/ref/reference.h"
#include "tensor/cuda/error.h"
#include "testing/convert.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels::gpu {
namespace {

using testing_util::converted;
using testing_util::copy_to;

constexpr std::int64_t kPad = 8;  // columns and rows behind those that a product may touch
constexpr std::int64_t kMostTokens = 300;

std::vector<HopperTile> all_tiles() {
  std::vector<HopperTile> tiles;
  for (const auto& some : {hopper_tiles_64(), hopper_tiles_128(), hopper_tiles_256()})
    tiles.insert(tiles.end(), some.begin(), some.end());
  return tiles;
}

std::string name_of(const HopperTile& tile) {
  return "tile of " + std::to_string(tile.tokens) + " tokens and " + std::to_string(tile.rows) +
         " rows, split " + std::to_string(tile.split) + ", share " + std::to_string(tile.share) +
         ", " + std::to_string(tile.resident) + " resident";
}

/// bf16 numbers as f32.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, float amplitude) {
  Tensor tensor(shape, DType::kF32);
  testing_util::Random random(seed);
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    tensor.view().as<float>()[i] = to_f32(to_bf16(random.uniform() * amplitude));
  return tensor;
}

/// A product of which the first tokens may be computed in several ways.
struct Matrices {
  Matrices(std::int64_t num_rows, std::int64_t num_cols, Stream& on)
      : rows(num_rows),
        cols(num_cols),
        stream(on),
        // Sums of about 1, whatever the number of columns.
        x(random_tensor({kMostTokens, cols + kPad}, 1, 3)),
        w(random_tensor({rows, cols}, 2, 1.7F / std::sqrt(static_cast<float>(cols)))),
        bias(random_tensor({rows}, 3, 2)),
        product({kMostTokens, rows}, DType::kF32) {
    Tensor packed({kMostTokens, cols}, DType::kF32);
    for (std::int64_t m = 0; m < kMostTokens; ++m)
      std::copy_n(x.view().as<float>() + m * (cols + kPad), cols,
                  packed.view().as<float>() + m * cols);
    linear_reference(packed, w, {}, product);
    gpu_x = copy_to(converted(x, DType::kBF16), kGpu, stream);
    gpu_w = copy_to(converted(w, DType::kBF16), kGpu, stream);
    gpu_bias = copy_to(bias, kGpu, stream);
  }

  std::int64_t width(Into into) const { return is_gated(into) ? rows / 2 : rows; }

  /// [tokens + 1, width + kPad] of `fill` bytes.
  Tensor make_y(std::int64_t tokens, DType type, Into into, int fill) const {
    Tensor host({tokens + 1, width(into) + kPad}, type);
    std::memset(host.view().data, fill, static_cast<std::size_t>(host.view().bytes()));
    return copy_to(host, kGpu, stream);
  }

  Product job(const Tensor& y, std::int64_t tokens, Into into) const {
    return {.x = gpu_x.view().data,
            .w = gpu_w.view().data,
            .bias = into == Into::kAdd ? nullptr : gpu_bias.view().as<float>(),
            .y = y.view().data,
            .tokens = tokens,
            .rows = rows,
            .cols = cols,
            .x_stride = cols + kPad,
            .y_stride = width(into) + kPad,
            .y_type = y.view().dtype,
            .into = into};
  }

  /// What becomes of the sums of token m, added to `before`.
  std::vector<float> expected(std::int64_t m, Into into, float before) const {
    std::vector<float> sums(product.view().as<float>() + m * rows,
                            product.view().as<float>() + (m + 1) * rows);
    for (std::int64_t n = 0; n < rows; ++n)
      sums[static_cast<std::size_t>(n)] += into == Into::kAdd ? before : bias.view().as<float>()[n];
    if (!is_gated(into)) return sums;
    Tensor gate_up({1, rows}, DType::kF32), y({1, rows / 2}, DType::kF32);
    std::copy(sums.begin(), sums.end(), gate_up.view().as<float>());
    if (into == Into::kSilu) {
      ref::silu_and_mul(gate_up, y);
    } else {
      ref::gelu_tanh_and_mul(gate_up, y);
    }
    return {y.view().as<float>(), y.view().as<float>() + rows / 2};
  }

  std::int64_t rows, cols;
  Stream& stream;
  Tensor x, w, bias, product;
  Tensor gpu_x = {}, gpu_w = {}, gpu_bias = {};
};

class GpuHopperProductTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (all_tiles().empty() || cuda::properties(kGpu).compute_major != 9)
      GTEST_SKIP() << "this GPU, or this build, is not one for Hopper's instructions";
    stream_ = cuda::make_stream(kGpu);
  }

  cudaStream_t handle() { return cuda::as_cuda(*stream_).handle(); }

  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuHopperProductTest, EveryTileGivesWhatTheReferenceGivesAndTouchesNothingElse) {
  struct Kind {
    Into into;
    DType type;
  };
  // Rows and columns that are no multiples of a tile, and fewer than a tile has.
  for (const auto& [rows, cols] :
       {std::pair{1104, 1032}, std::pair{16, 200}, std::pair{368, 576}}) {
    const Matrices matrices(rows, cols, *stream_);
    for (const HopperTile& tile : all_tiles())
      for (const std::int64_t tokens : {3, tile.tokens - 23, tile.tokens, tile.tokens + 41})
        for (const Kind kind : {Kind{Into::kStore, DType::kBF16}, Kind{Into::kStore, DType::kF32},
                                Kind{Into::kAdd, DType::kF32}, Kind{Into::kSilu, DType::kBF16},
                                Kind{Into::kGelu, DType::kBF16}}) {
          constexpr int kFill = 0x41;  // 12.08 as f32
          const std::string what = name_of(tile) + ", " + std::to_string(tokens) + " tokens, [" +
                                   std::to_string(rows) + ", " + std::to_string(cols) + "], into " +
                                   std::to_string(static_cast<int>(kind.into)) + " " +
                                   std::string(name(kind.type));
          const Tensor y = matrices.make_y(tokens, kind.type, kind.into, kFill);
          const Product job = matrices.job(y, tokens, kind.into);
          ASSERT_TRUE(takes_product(job, tile)) << what;
          tile.run(job, handle());
          const Tensor found = converted(copy_to(y, kCpu, *stream_), DType::kF32);
          const Tensor untouched = converted(
              copy_to(matrices.make_y(tokens, kind.type, kind.into, kFill), kCpu, *stream_),
              DType::kF32);
          const std::int64_t width = matrices.width(kind.into), stride = width + kPad;
          const float* const have = found.view().as<float>();
          const float before = untouched.view().as<float>()[0];
          const double relative = kind.type == DType::kF32 ? 1e-5 : 0x1p-8;
          for (std::int64_t m = 0; m <= tokens; ++m) {
            const std::vector<float> want =
                m < tokens ? matrices.expected(m, kind.into, before) : std::vector<float>();
            for (std::int64_t n = 0; n < stride; ++n) {
              const float is = have[m * stride + n];
              if (m == tokens || n >= width) {
                ASSERT_EQ(is, before) << what << ", token " << m << ", column " << n;
                continue;
              }
              const double right = want[static_cast<std::size_t>(n)];
              ASSERT_LE(std::abs(is - right), 1e-3 + relative * std::abs(right))
                  << what << ", token " << m << ", row " << n;
            }
          }
        }
  }
}

/// Three products that add to the same sums, each of which must wait for the one before it.
TEST_F(GpuHopperProductTest, AGraphGivesTheBitsOfWhatItRecorded) {
  const Matrices matrices(1104, 1032, *stream_);
  for (const HopperTile& tile : all_tiles()) {
    const std::int64_t tokens = tile.tokens - 7;
    const auto three_times = [&](const Tensor& y) {
      for (int i = 0; i < 3; ++i) tile.run(matrices.job(y, tokens, Into::kAdd), handle());
    };
    const auto bytes_of_y = [&](const Tensor& y) {
      const Tensor host = copy_to(y, kCpu, *stream_);
      return std::vector<std::byte>(host.view().data, host.view().data + host.view().bytes());
    };
    const Tensor once = matrices.make_y(tokens, DType::kF32, Into::kAdd, 0x41);
    const Tensor again = matrices.make_y(tokens, DType::kF32, Into::kAdd, 0x41);
    three_times(once);
    cuda::check_cuda(cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal), "capture");
    three_times(again);
    cudaGraph_t graph = nullptr;
    cuda::check_cuda(cudaStreamEndCapture(handle(), &graph), "capture");
    cudaGraphExec_t executable = nullptr;
    cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "capture");
    cuda::check_cuda(cudaGraphLaunch(executable, handle()), "replay");
    EXPECT_EQ(bytes_of_y(again), bytes_of_y(once)) << name_of(tile);
    // And a second time, on what the first one left.
    three_times(once);
    cuda::check_cuda(cudaGraphLaunch(executable, handle()), "replay");
    EXPECT_EQ(bytes_of_y(again), bytes_of_y(once)) << name_of(tile);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

TEST_F(GpuHopperProductTest, OnlyProductsThatTmaAndWideStoresTakeAreTaken) {
  const Matrices matrices(64, 72, *stream_);
  const Tensor y = matrices.make_y(8, DType::kBF16, Into::kStore, 0);
  const Product good = matrices.job(y, 8, Into::kStore);
  const HopperTile tile = all_tiles().front();
  EXPECT_TRUE(takes_product(good, tile));
  const auto refused = [&](const std::function<void(Product&)>& change) {
    Product bad = good;
    change(bad);
    return !takes_product(bad, tile);
  };
  EXPECT_TRUE(refused([](Product& p) { p.rows = 60; }));
  EXPECT_TRUE(refused([](Product& p) { p.cols = 68; }));
  EXPECT_TRUE(refused([](Product& p) { p.x_stride = 76; }));
  EXPECT_TRUE(refused([](Product& p) { p.y_stride = 74; }));
  EXPECT_TRUE(refused([](Product& p) { p.y = static_cast<std::byte*>(p.y) + 4; }));
  EXPECT_TRUE(refused([](Product& p) { p.x = static_cast<const std::byte*>(p.x) + 8; }));
  EXPECT_TRUE(refused([](Product& p) { p.into = Into::kAdd; }));
  EXPECT_TRUE(refused([](Product& p) { p.norm = p.bias; }));
  EXPECT_TRUE(refused([](Product& p) {
    p.into = Into::kSilu;
    p.rows = 72;
  }));
}

/// The sizes of Qwen3-14B: tiles that give an H200's 132 multiprocessors equal shares come first.
TEST_F(GpuHopperProductTest, TilesThatShareTheRowsEvenlyAreMeasured) {
  if (cuda::as_cuda(*stream_).num_multiprocessors() != 132) GTEST_SKIP() << "for 132 of them";
  const Matrices matrices(64, 72, *stream_);
  const Tensor y = matrices.make_y(8, DType::kBF16, Into::kStore, 0);
  const auto first = [&](std::int64_t rows, std::int64_t cols, std::int64_t tokens) {
    Product p = matrices.job(y, tokens, Into::kStore);
    p.rows = p.y_stride = rows;
    p.cols = p.x_stride = cols;
    const auto likely = likely_tiles(p, cuda::as_cuda(*stream_));
    EXPECT_EQ(likely.size(), 4U);
    return std::pair{likely.front()->tokens, likely.front()->rows};
  };
  EXPECT_EQ(first(34816, 5120, 192), (std::pair{192, 136}));
  EXPECT_EQ(first(34816, 5120, 256), (std::pair{256, 136}));
  EXPECT_EQ(first(7168, 5120, 256), (std::pair{128, 112}));
  EXPECT_EQ(first(5120, 17408, 100), (std::pair{128, 80}));
  // And of Qwen3-0.6B.
  EXPECT_EQ(first(4096, 1024, 64), (std::pair{64, 32}));
  EXPECT_EQ(first(1024, 2048, 64), (std::pair{64, 32}));
  EXPECT_EQ(first(1024, 3072, 24), (std::pair{64, 32}));
}

}  // namespace
}  // namespace minisgl::kernels::gpu
