// Products of few tokens with weights: each weight is read once, so reading is what takes time.
//
// A block computes 8 * kTiles rows of w; its eight warps share the columns. The tensor core's tile
// is 16 tokens by 8 rows by 16 columns. Which columns a lane's registers stand for may be chosen
// freely as long as x and w agree: lane (g, t) takes eight consecutive ones at 8 t of every 32, so
// that each operand is one 16-byte load.

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 32;  // that a warp takes at a time
constexpr int kTokens = 16;

/// 16 bytes that will not be read again.
__device__ uint4 load_once(const Bf16* p) {
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(p));
  return r;
}

__device__ void multiply(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

template <int kTiles, class Y>
__global__ void __launch_bounds__(32 * kWarps) small_kernel(Product p) {
  constexpr int kAhead = kTiles == 1 ? 8 : 4;  // loads of each tile before the first is used
  __shared__ float sums[kWarps][8 * kTiles][kTokens + 1];
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * 8 * kTiles;
  const auto* x = static_cast<const Bf16*>(p.x);
  const auto* w = static_cast<const Bf16*>(p.w);
  const bool low = g < p.tokens;
  const bool high = g + 8 < p.tokens;
  float acc[kTiles][4] = {};
  bool waited = false;
  for (std::int64_t begin = warp * kColumns; begin < p.cols; begin += kAhead * kWarps * kColumns) {
    uint4 weights[kAhead][kTiles];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t k = begin + i * kWarps * kColumns + 8 * t;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const std::int64_t row = first_row + 8 * tile + g;
        weights[i][tile] =
            k < p.cols && row < p.rows ? load_once(w + row * p.cols + k) : uint4{0, 0, 0, 0};
      }
    }
    if (!waited) await_inputs();  // the first weights are on their way
    waited = true;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t k = begin + i * kWarps * kColumns + 8 * t;
      const bool inside = k < p.cols;
      const uint4 none{0, 0, 0, 0};
      const uint4 a =
          low && inside ? *reinterpret_cast<const uint4*>(x + g * p.x_stride + k) : none;
      const uint4 b =
          high && inside ? *reinterpret_cast<const uint4*>(x + (g + 8) * p.x_stride + k) : none;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4& v = weights[i][tile];
        multiply(acc[tile], a.x, b.x, a.y, b.y, v.x, v.y);
        multiply(acc[tile], a.z, b.z, a.w, b.w, v.z, v.w);
      }
    }
  }
  if (!waited) await_inputs();  // a warp without columns, too, must not write before
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    sums[warp][8 * tile + 2 * t][g] = acc[tile][0];
    sums[warp][8 * tile + 2 * t + 1][g] = acc[tile][1];
    sums[warp][8 * tile + 2 * t][g + 8] = acc[tile][2];
    sums[warp][8 * tile + 2 * t + 1][g + 8] = acc[tile][3];
  }
  __syncthreads();
  const int count = 8 * kTiles * static_cast<int>(p.tokens);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32 * kWarps) {
    const int n = i % (8 * kTiles);
    const int m = i / (8 * kTiles);
    const std::int64_t row = first_row + n;
    if (row >= p.rows) continue;
    float sum = p.bias != nullptr ? p.bias[row] : 0.0F;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += sums[other][n][m];
    static_cast<Y*>(p.y)[m * p.y_stride + row] = from_float<Y>(sum);
  }
}

template <class Y>
__global__ void bias_kernel(Product p) {
  let_next_start();
  await_inputs();
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  const float bias = p.bias[row];
  for (std::int64_t m = blockIdx.y; m < p.tokens; m += gridDim.y) {
    Y& y = static_cast<Y*>(p.y)[m * p.y_stride + row];
    y = from_float<Y>(to_float(y) + bias);
  }
}

}  // namespace

void small_product(const Product& product, int tiles, cudaStream_t stream) {
  check(product.tokens <= kTokens, "small_product takes ", kTokens, " tokens, not ",
        product.tokens);
  const unsigned blocks = blocks_for(product.rows, 8 * tiles);
  visit_device_float(product.y_type, [&]<class Y>() {
    const auto kernel = tiles == 1   ? small_kernel<1, Y>
                        : tiles == 2 ? small_kernel<2, Y>
                                     : small_kernel<4, Y>;
    launch("linear", kernel, {dim3(blocks), 32 * kWarps}, stream, product);
  });
}

void add_bias(const Product& product, cudaStream_t stream) {
  constexpr int kThreads = 128;
  const dim3 grid(blocks_for(product.rows, kThreads),
                  static_cast<unsigned>(std::min<std::int64_t>(product.tokens, 4096)));
  visit_device_float(product.y_type, [&]<class Y>() {
    launch("add_bias", bias_kernel<Y>, {grid, kThreads}, stream, product);
  });
}

}  // namespace minisgl::kernels::gpu
