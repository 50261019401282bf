// Products of up to a few dozen tokens with weights.
//
// With more tokens than linear.cu is for, bringing x to every block takes longer than reading the
// weights. Here a cluster of blocks computes 16 * kRowTiles rows of w, and its blocks share the
// columns: each brings its part of x only. Their sums meet in the cluster's shared memory and are
// added in the order of the blocks, whatever the number of tokens.
//
// As in linear.cu a lane brings the weights that it will multiply to a ring of its own before the
// kernel before has ended (here often all of them), and what lies between products is done here:
// the norm before, the addition to the residual stream or the gated activation after.

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "base/math.h"
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kColumns = 32;  // that a warp takes at a time
constexpr int kAhead = 8;     // loads of a lane that are on their way at a time
constexpr int kRingBytes = kAhead * 2 * kThreads * 16;
constexpr int kMaxBytes = 200 << 10;

/// The first columns of x that a block does not bring, from one block to the next.
__host__ __device__ int part_columns(std::int64_t cols, int blocks) {
  const auto each = static_cast<int>((cols + blocks - 1) / blocks);
  return (each + kColumns - 1) / kColumns * kColumns;
}

/// Of x in shared memory: rows lie half of the banks apart, so that a warp's loads do not collide.
__host__ __device__ int pitch_of(int part_cols) { return (part_cols + 63) / 64 * 64 + 32; }

/// The blocks' sums: [warps that share columns][tokens][rows], rows so far apart that a warp's
/// stores do not collide.
template <int kRowTiles, int kTokens>
struct Parts {
  static constexpr int kSlices = kWarps / kRowTiles;
  static constexpr int kPitch = 16 * kRowTiles + 4;
  static constexpr int kBytes = kSlices * kTokens * kPitch * 4;
};

/// Brings this block's columns of x to shared memory, under a norm without the scales of its rows:
/// `squares` [tokens] are sums of squares of these columns.
template <int kTokens, bool kNorm>
__device__ void stage_columns(const Product& p, int begin, int count, Bf16* staged, int pitch,
                              float* squares) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto tokens = static_cast<int>(p.tokens);
  if constexpr (kNorm) {
    // A warp has every eighth token, all of them at a time: no load waits for another.
    constexpr int kEach = kTokens / kWarps;
    float sums[kEach] = {};
    const float* rows[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int m = min(warp + j * kWarps, tokens - 1);
      rows[j] = static_cast<const float*>(p.x) +
                (p.x_rows != nullptr ? p.x_rows[m] : m) * p.x_stride + begin;
    }
    for (int at = 4 * lane; at < count; at += 128) {
      const float4 weight = *reinterpret_cast<const float4*>(p.norm + begin + at);
      float4 x[kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) x[j] = *reinterpret_cast<const float4*>(rows[j] + at);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        sums[j] += x[j].x * x[j].x + x[j].y * x[j].y + x[j].z * x[j].z + x[j].w * x[j].w;
        const __nv_bfloat162 pairs[2] = {
            __floats2bfloat162_rn(x[j].x * weight.x, x[j].y * weight.y),
            __floats2bfloat162_rn(x[j].z * weight.z, x[j].w * weight.w)};
        *reinterpret_cast<uint2*>(staged + (warp + j * kWarps) * pitch + at) =
            *reinterpret_cast<const uint2*>(pairs);
      }
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float sum = warp_sum(sums[j]);
      if (lane == 0) squares[warp + j * kWarps] = sum;
    }
  } else {
    for (int m = warp; m < tokens; m += kWarps)
      for (int at = 8 * lane; at < count; at += 256)
        copy_async(reinterpret_cast<uint4*>(staged + m * pitch + at),
                   static_cast<const Bf16*>(p.x) + m * p.x_stride + begin + at, true);
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
  __syncthreads();
}

/// (Before Hopper the kernel is empty.)
[[maybe_unused]] __device__ void add(float4& sum, const float4& other) {
  sum.x += other.x;
  sum.y += other.y;
  sum.z += other.z;
  sum.w += other.w;
}

/// Grid: a cluster for each group of rows. kTokenTiles: eighths of the tokens that there may be.
template <int kRowTiles, int kTokenTiles, bool kNorm>
__global__ void __launch_bounds__(kThreads, 2) cluster_kernel(const __grid_constant__ Product p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kTokens = 8 * kTokenTiles;
  using Sums = Parts<kRowTiles, kTokens>;
  constexpr int kStep = Sums::kSlices * kColumns;  // from one load of a lane to its next
  __shared__ float squares[kTokens];
  extern __shared__ __align__(16) unsigned char dynamic[];
  let_next_start();
  const auto cluster = cooperative_groups::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto part = static_cast<int>(cluster.block_rank());
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int tile = warp % kRowTiles;
  const int slice = warp / kRowTiles;
  const auto cols = static_cast<int>(p.cols);
  const auto tokens = static_cast<int>(p.tokens);
  const int part_cols = part_columns(cols, blocks);
  const int begin = min(cols, part * part_cols);
  const int count = min(cols - begin, part_cols);
  uint4* ring = reinterpret_cast<uint4*>(dynamic) + threadIdx.x;
  auto* staged =
      reinterpret_cast<Bf16*>(dynamic + (kRingBytes > Sums::kBytes ? kRingBytes : Sums::kBytes));
  const int pitch = pitch_of(part_cols);
  // The second half of a gated group are the rows of `up` that belong to the first half.
  const bool gated = p.into == Into::kSilu || p.into == Into::kGelu;
  const int width = gated ? kRows / 2 : kRows;  // rows of the result
  const auto end_row = static_cast<int>(gated ? p.rows / 2 : p.rows);
  const int first_row = static_cast<int>(blockIdx.x) / blocks * width;

  const int first_column = slice * kColumns + 8 * t;
  const int loads = (count - slice * kColumns + kStep - 1) / kStep;
  const auto is_inside = [&](int i) { return first_column + i * kStep < count; };
  const Bf16* rows[2];  // null beyond the last row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int local = 16 * tile + 8 * half + g;
    const bool up = gated && local >= width;
    const int row = first_row + (up ? local - width : local);
    rows[half] = row >= end_row
                     ? nullptr
                     : static_cast<const Bf16*>(p.w) +
                           std::int64_t{up ? row + end_row : row} * cols + begin + first_column;
  }
  // A group of copies for each load, empty ones too, so that counting them tells what has arrived.
  const auto load = [&](int i) {
    if (i < loads) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool there = rows[half] != nullptr && is_inside(i);
        stream_async(ring + (i % kAhead * 2 + half) * kThreads,
                     there ? rows[half] + i * kStep : static_cast<const Bf16*>(p.w), there);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  if constexpr (kNorm) bring_near(p.norm + begin, 4 * count);
#pragma unroll 1
  for (int i = 0; i < kAhead; ++i) load(i);
  await_inputs();
  stage_columns<kTokens, kNorm>(p, begin, count, staged, pitch, squares);

  float acc[kTokenTiles][4] = {};
  const Bf16* x = staged + first_column + g * pitch;
#pragma unroll 1
  for (int i = 0; i < loads; ++i) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    const uint4 low = ring[(i % kAhead * 2) * kThreads];
    const uint4 high = ring[(i % kAhead * 2 + 1) * kThreads];
    const std::uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
    const bool inside = is_inside(i);
    // Of tokens that there are not too: nothing waits for a look at their number.
    uint4 b[kTokenTiles];
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
      b[n] = inside ? *reinterpret_cast<const uint4*>(x + 8 * n * pitch + i * kStep)
                    : uint4{0, 0, 0, 0};
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) multiply(acc[n], a[0], b[n].x, b[n].y);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) multiply(acc[n], a[1], b[n].z, b[n].w);
    load(i + kAhead);
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();  // the ring has been read; its place is taken by the sums
  auto* sums = reinterpret_cast<float*>(dynamic);
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    float* to = sums + (slice * kTokens + 8 * n + 2 * t) * Sums::kPitch + 16 * tile + g;
    to[0] = acc[n][0];
    to[Sums::kPitch] = acc[n][1];
    to[8] = acc[n][2];
    to[Sums::kPitch + 8] = acc[n][3];
  }
  cluster.sync();

  // Each block finishes some of the tokens.
  constexpr int kAtOnce = Sums::kSlices == 4 ? 2 : 4;  // blocks whose sums are on their way
  const int each = (kTokens + blocks - 1) / blocks;
  const int quads = width / 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < each * quads; i += kThreads) {
    const int m = part * each + (gated ? i / (kRows / 8) : i / (kRows / 4));
    const int n = (gated ? i % (kRows / 8) : i % (kRows / 4)) * 4;
    const int row = first_row + n;
    if (m >= tokens || m >= kTokens || row >= end_row) continue;
    const std::int64_t at = m * p.y_stride + row;
    const int valid = min(4, end_row - row);
    float4 old{};
    if (p.into == Into::kAdd) {
      for (int j = 0; j < valid; ++j) (&old.x)[j] = static_cast<const float*>(p.y)[at + j];
    }
    float4 value{};
    float4 up{};
    float square = 0;
    const float* const from = sums + m * Sums::kPitch + n;
    for (int first = 0; first < blocks; first += kAtOnce) {
      float4 values[kAtOnce][Sums::kSlices], ups[kAtOnce][Sums::kSlices];
      float squares_of[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const float* there = cluster.map_shared_rank(from, min(first + j, blocks - 1));
#pragma unroll
        for (int s = 0; s < Sums::kSlices; ++s) {
          const float* at_slice = there + s * kTokens * Sums::kPitch;
          values[j][s] = *reinterpret_cast<const float4*>(at_slice);
          if (gated) ups[j][s] = *reinterpret_cast<const float4*>(at_slice + width);
        }
        if constexpr (kNorm)
          squares_of[j] = *cluster.map_shared_rank(squares + m, min(first + j, blocks - 1));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= blocks) break;
#pragma unroll
        for (int s = 0; s < Sums::kSlices; ++s) {
          add(value, values[j][s]);
          if (gated) add(up, ups[j][s]);
        }
        if constexpr (kNorm) square += squares_of[j];
      }
    }
    const float scale = kNorm ? rsqrtf(square / static_cast<float>(cols) + p.eps) : 1.0F;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j >= valid) break;
      float& result = (&value.x)[j];
      result = result * scale + (p.bias != nullptr ? p.bias[row + j] : 0.0F);
      if (gated) {
        const float factor =
            (&up.x)[j] * scale + (p.bias != nullptr ? p.bias[end_row + row + j] : 0.0F);
        result =
            (p.into == Into::kGelu ? activated<true>(result) : activated<false>(result)) * factor;
      }
      result += (&old.x)[j];
    }
    const bool quad = valid == 4 && at % 4 == 0;
    if (p.y_type == DType::kBF16) {
      Bf16* y = static_cast<Bf16*>(p.y) + at;
      if (quad) {
        const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(value.x, value.y),
                                         __floats2bfloat162_rn(value.z, value.w)};
        *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(pairs);
      } else {
        for (int j = 0; j < valid; ++j) y[j] = __float2bfloat16_rn((&value.x)[j]);
      }
    } else {
      float* y = static_cast<float*>(p.y) + at;
      if (quad) {
        *reinterpret_cast<float4*>(y) = value;
      } else {
        for (int j = 0; j < valid; ++j) y[j] = (&value.x)[j];
      }
    }
  }
  cluster.sync();  // other blocks have read this one's sums
#endif
}

int token_tiles(std::int64_t tokens) { return tokens <= 16 ? 2 : 4; }

std::int64_t shared_bytes(const Product& p, ClusterShape shape) {
  const std::int64_t tokens = 8 * token_tiles(p.tokens);
  const std::int64_t sums =
      std::int64_t{kWarps / shape.row_tiles} * tokens * (16 * shape.row_tiles + 4) * 4;
  return std::max<std::int64_t>(kRingBytes, sums) +
         tokens * pitch_of(part_columns(p.cols, shape.blocks)) * 2;
}

}  // namespace

bool takes_product(const Product& p, ClusterShape shape) {
  // The GPUs that know of clusters know of overlap too.
  return overlap_is_known() && p.tokens <= kClusterTokens && p.cols % 8 == 0 && p.cols <= INT_MAX &&
         shared_bytes(p, shape) <= kMaxBytes;
}

std::int64_t blocks_of(const Product& p, ClusterShape shape) {
  const bool gated = p.into == Into::kSilu || p.into == Into::kGelu;
  const std::int64_t rows = gated ? p.rows / 2 : p.rows;
  return ceil_div<std::int64_t>(rows, (gated ? 8 : 16) * shape.row_tiles) * shape.blocks;
}

void cluster_product(const Product& p, ClusterShape shape, cuda::CudaStream& stream) {
  check(takes_product(p, shape), "cluster_product cannot take ", p.tokens, " tokens of ", p.cols,
        " columns");
  check(p.rows <= INT_MAX, "a matrix of [", p.rows, ", ", p.cols, "] is too large");
  const auto start = [&]<int kRowTiles, int kTokenTiles, bool kNorm>() {
    const auto kernel = cluster_kernel<kRowTiles, kTokenTiles, kNorm>;
    static const cudaError_t allowed =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxBytes);
    cuda::check_cuda(allowed, "asking for ", kMaxBytes, " bytes of shared memory");
    launch("linear", kernel,
           {.grid = dim3(static_cast<unsigned>(blocks_of(p, shape))),
            .threads = kThreads,
            .shared_bytes = static_cast<std::size_t>(shared_bytes(p, shape)),
            .cluster = static_cast<unsigned>(shape.blocks)},
           stream.handle(), p);
  };
  const auto with_tokens = [&]<int kRowTiles, bool kNorm>() {
    token_tiles(p.tokens) == 2 ? start.template operator()<kRowTiles, 2, kNorm>()
                               : start.template operator()<kRowTiles, 4, kNorm>();
  };
  const auto with_norm = [&]<int kRowTiles>() {
    p.norm != nullptr ? with_tokens.template operator()<kRowTiles, true>()
                      : with_tokens.template operator()<kRowTiles, false>();
  };
  if (shape.row_tiles == 2) return with_norm.template operator()<2>();
  if (shape.row_tiles == 4) return with_norm.template operator()<4>();
  check(shape.row_tiles == 8, "cluster_product has 2, 4 or 8 tiles of rows");
  with_norm.template operator()<8>();
}

}  // namespace minisgl::kernels::gpu
