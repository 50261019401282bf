// Products of many experts' matrices with their own rows of x. How many rows each has is known on
// the device only, so that a graph of a step holds for any routing.
//
// Few rows for each expert: a block takes 16 rows of a matrix and its expert's rows of x, 16 at a
// time; reading the weights is what takes time. Many: tiles of 128 x 128 in shared memory, of the
// expert that the block's number falls to.

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr unsigned kAll = 0xFFFFFFFFU;

/// One projection of all experts.
struct Projection {
  const void* w = nullptr;  ///< [experts, rows, cols], of x's type
  std::int64_t expert_stride = 0;
  int rows = 0;
  int first_column = 0;  ///< of y
};

struct Grouped {
  const void* x = nullptr;  ///< bf16 or f16
  void* y = nullptr;
  std::int64_t x_stride = 0, y_stride = 0;
  const int* offsets = nullptr;
  int num_experts = 0;
  int cols = 0;
  Projection projections[2];
  int first_blocks = 0;  ///< blocks along x of the grid that work on the first projection
};

/// The projection of a block, and its number among those of the projection. A copy, made with
/// constant indices: others would bring all of `p` to local memory.
__device__ Projection projection_of(const Grouped& p, int& block) {
  block = static_cast<int>(blockIdx.x);
  if (block < p.first_blocks) return p.projections[0];
  block -= p.first_blocks;
  return p.projections[1];
}

constexpr int kFewRows = 16;    // of w, for a block
constexpr int kFewTokens = 16;  // at a time

/// As small_kernel of linear.cu, where the registers' columns are explained.
template <class T, class Y>
__global__ void __launch_bounds__(kThreads) few_kernel(const Grouped p) {
  constexpr int kTiles = kFewRows / 8;
  constexpr int kColumns = 32;
  constexpr int kAhead = 4;
  __shared__ float sums[kWarps][kFewRows][kFewTokens + 1];
  let_next_start();
  await_inputs();
  const int expert = static_cast<int>(blockIdx.y);
  const int begin_row = p.offsets[expert];
  const int end_row = p.offsets[expert + 1];
  if (begin_row == end_row) return;
  int block;
  const Projection projection = projection_of(p, block);
  const int first = block * kFewRows;
  const T* w = static_cast<const T*>(projection.w) + expert * projection.expert_stride;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const uint4 none{0, 0, 0, 0};
  for (int token = begin_row; token < end_row; token += kFewTokens) {
    const int tokens = min(kFewTokens, end_row - token);
    const T* x = static_cast<const T*>(p.x) + token * p.x_stride;
    float acc[kTiles][4] = {};
    for (int begin = warp * kColumns; begin < p.cols; begin += kAhead * kWarps * kColumns) {
      uint4 weights[kAhead][kTiles];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int k = begin + i * kWarps * kColumns + 8 * t;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const int row = first + 8 * tile + g;
          weights[i][tile] =
              k < p.cols && row < projection.rows
                  ? __ldg(reinterpret_cast<const uint4*>(w + std::int64_t{row} * p.cols + k))
                  : none;
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int k = begin + i * kWarps * kColumns + 8 * t;
        const bool inside = k < p.cols;
        const uint4 a =
            inside && g < tokens ? *reinterpret_cast<const uint4*>(x + g * p.x_stride + k) : none;
        const uint4 b = inside && g + 8 < tokens
                            ? *reinterpret_cast<const uint4*>(x + (g + 8) * p.x_stride + k)
                            : none;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4& v = weights[i][tile];
          multiply<T>(acc[tile], {a.x, b.x, a.y, b.y}, v.x, v.y);
          multiply<T>(acc[tile], {a.z, b.z, a.w, b.w}, v.z, v.w);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[warp][8 * tile + 2 * t][g] = acc[tile][0];
      sums[warp][8 * tile + 2 * t + 1][g] = acc[tile][1];
      sums[warp][8 * tile + 2 * t][g + 8] = acc[tile][2];
      sums[warp][8 * tile + 2 * t + 1][g + 8] = acc[tile][3];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kFewRows * tokens; i += kThreads) {
      const int n = i % kFewRows;
      const int m = i / kFewRows;
      if (first + n >= projection.rows) continue;
      float sum = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) sum += sums[other][n][m];
      static_cast<Y*>(p.y)[(token + m) * p.y_stride + projection.first_column + first + n] =
          from_float<Y>(sum);
    }
    __syncthreads();  // `sums` is written again
  }
}

constexpr int kTile = 128;                  // tokens, and rows of w
constexpr int kDepth = 64;                  // columns of a stage
constexpr int kUnits = kTile * kDepth / 8;  // of 16 bytes, of x or w in a stage
constexpr int kStages = 3;
constexpr std::size_t kTileSharedBytes = std::size_t{kStages} * 2 * kUnits * 16;

/// Rows [first, end) of x, at most kTile of them.
struct TokenTile {
  int expert, first, end;
};

/// The tile with number blockIdx.y when every expert's rows are cut into tiles; expert -1 when
/// there are fewer. All threads call it.
__device__ TokenTile find_tile(const Grouped& p) {
  __shared__ TokenTile found;
  if (threadIdx.x == 0) found = {-1, 0, 0};
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    int left = static_cast<int>(blockIdx.y);
    for (int base = 0; base < p.num_experts && left >= 0; base += 32) {
      const int e = base + lane;
      const int begin = e < p.num_experts ? p.offsets[e] : 0;
      const int end = e < p.num_experts ? p.offsets[e + 1] : 0;
      const int tiles = (end - begin + kTile - 1) / kTile;
      int upto = tiles;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int lower = __shfl_up_sync(kAll, upto, d);
        if (lane >= d) upto += lower;
      }
      const int before = upto - tiles;
      if (before <= left && left < upto) {
        const int first = begin + (left - before) * kTile;
        found = {e, first, min(end, first + kTile)};
      }
      const int all = __shfl_sync(kAll, upto, 31);
      left = left < all ? -1 : left - all;
    }
  }
  __syncthreads();
  return found;
}

/// Brings columns [k, k + kDepth) of rows [first, end) of a matrix to shared memory; zeros beyond.
template <class T>
__device__ void load_rows(uint4* to, const T* from, std::int64_t stride, int first, int end, int k,
                          int cols) {
#pragma unroll
  for (int i = 0; i < kUnits / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = at / (kDepth / 8);
    const int unit = at % (kDepth / 8);
    const bool valid = first + row < end && k + unit * 8 < cols;
    const T* source = valid ? from + (first + row) * stride + k + unit * 8 : from;
    copy_async(to + swizzled<kDepth>(row, unit), source, valid);
  }
}

/// The warps lie 2 x 4 over the tile; each has 64 tokens and 32 rows of w.
template <class T, class Y>
__global__ void __launch_bounds__(kThreads) tile_kernel(const Grouped p) {
  extern __shared__ uint4 memory[];
  let_next_start();
  await_inputs();
  const TokenTile tokens = find_tile(p);
  if (tokens.expert < 0) return;
  int block;
  const Projection projection = projection_of(p, block);
  const int first_row = block * kTile;
  const T* w = static_cast<const T*>(projection.w) + tokens.expert * projection.expert_stride;
  const int steps = (p.cols + kDepth - 1) / kDepth;
  const auto load = [&](int step) {
    if (step < steps) {
      uint4* to = memory + step % kStages * 2 * kUnits;
      load_rows(to, static_cast<const T*>(p.x), p.x_stride, tokens.first, tokens.end, step * kDepth,
                p.cols);
      load_rows(to + kUnits, w, p.cols, first_row, projection.rows, step * kDepth, p.cols);
    }
    asm volatile("cp.async.commit_group;");
  };
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int m0 = warp / 4 * 64;
  const int n0 = warp % 4 * 32;
  float acc[4][4][4] = {};  // of 16 tokens by 8 rows
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();  // the stage is there for all, and the one before it is read by all
    load(step + kStages - 1);
    const uint4* x = memory + step % kStages * 2 * kUnits;
    const uint4* y = x + kUnits;
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      std::uint32_t a[4][4];
      std::uint32_t b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        load_matrices<false>(a[i],
                             x + swizzled<kDepth>(m0 + 16 * i + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < 2; ++j)
        load_matrices<false>(b[j], y + swizzled<kDepth>(n0 + 16 * j + lane % 8 + lane / 16 * 8,
                                                        2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          multiply<T>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = tokens.first + m0 + 16 * i + 8 * half + g;
      if (token >= tokens.end) continue;
      Y* y = static_cast<Y*>(p.y) + token * p.y_stride + projection.first_column;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = first_row + n0 + 8 * j + 2 * t;
        if (row >= projection.rows) continue;
        y[row] = from_float<Y>(acc[i][j][2 * half]);
        if (row + 1 < projection.rows) y[row + 1] = from_float<Y>(acc[i][j][2 * half + 1]);
      }
    }
  }
}

Grouped checked(const GroupedLinearArgs& args) {
  check(args.weights.size() == 1 || args.weights.size() == 2,
        "grouped_linear takes 1 or 2 projections, not ", args.weights.size());
  const PackedExperts& one = *args.weights[0];
  check_half(args.x, "x of grouped_linear");
  check_tensor(args.x, {-1, one.cols()}, args.x.dtype, "x of grouped_linear");
  check_tensor(args.offsets, {one.num_experts() + 1}, DType::kI32, "offsets of grouped_linear");
  check_float(args.y, "y of grouped_linear");
  check_vectors(args.x, "x of grouped_linear");
  check(args.y.dtype == args.x.dtype || args.y.dtype == DType::kF32, "grouped_linear: y is ",
        name(args.y.dtype), ", and x ", name(args.x.dtype));
  Grouped p{.x = args.x.data,
            .y = args.y.data,
            .x_stride = args.x.stride(0),
            .y_stride = args.y.stride(0),
            .offsets = args.offsets.as<std::int32_t>(),
            .num_experts = static_cast<int>(one.num_experts()),
            .cols = static_cast<int>(one.cols()),
            .projections = {},
            .first_blocks = 0};
  int columns = 0;
  for (std::size_t i = 0; i < args.weights.size(); ++i) {
    const PackedExperts& experts = *args.weights[i];
    check(experts.complete() && experts.packing() == Packing::kGpuRows &&
              experts.num_experts() == one.num_experts() && experts.cols() == one.cols() &&
              experts.dtype() == args.x.dtype,
          "grouped_linear: the projections must be of all of the same experts, in the GPU's memory "
          "and of the type of x, ",
          name(args.x.dtype));
    p.projections[i] = {.w = experts.expert(0),
                        .expert_stride = (experts.expert(1) - experts.expert(0)) / 2,
                        .rows = static_cast<int>(experts.rows()),
                        .first_column = columns};
    columns += static_cast<int>(experts.rows());
  }
  check_tensor(args.y, {args.x.dim(0), columns}, args.y.dtype, "y of grouped_linear");
  check(args.y.stride(1) == 1, "grouped_linear: the columns of y must be contiguous");
  return p;
}

}  // namespace

void grouped_linear(const GroupedLinearArgs& args, Stream& stream) {
  Grouped p = checked(args);
  const std::int64_t rows = args.x.dim(0);
  if (stream.dry() || rows == 0) return;
  const bool few =
      as_cuda(stream).deterministic() || rows <= std::int64_t{kFewTokens} * p.num_experts;
  const int rows_of_block = few ? kFewRows : kTile;
  p.first_blocks = static_cast<int>(blocks_for(p.projections[0].rows, rows_of_block));
  const unsigned columns =
      static_cast<unsigned>(p.first_blocks) + blocks_for(p.projections[1].rows, rows_of_block);
  const cudaStream_t on = as_cuda(stream).handle();
  const auto start = [&]<class T, class Y>() {
    if (few) {
      const dim3 grid(columns, static_cast<unsigned>(p.num_experts));
      launch("grouped_linear", few_kernel<T, Y>, {grid, kThreads}, on, p);
      return;
    }
    // Every expert may have a tile that is not full.
    const dim3 grid(columns, static_cast<unsigned>(rows / kTile + p.num_experts));
    cuda::check_cuda(
        cudaFuncSetAttribute(tile_kernel<T, Y>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kTileSharedBytes)),
        "reserving shared memory for grouped_linear");
    launch("grouped_linear", tile_kernel<T, Y>, {grid, kThreads, kTileSharedBytes}, on, p);
  };
  const bool wide = args.y.dtype == DType::kF32;
  if (args.x.dtype == DType::kF16) {
    wide ? start.template operator()<F16, float>() : start.template operator()<F16, F16>();
  } else {
    wide ? start.template operator()<Bf16, float>() : start.template operator()<Bf16, Bf16>();
  }
}

}  // namespace minisgl::kernels::gpu
