// Products of few tokens with weights: each weight is read once, so reading is what takes time.
//
// A block computes 8 * kTiles rows of w; its warps share the columns. The tensor core's tile is 16
// tokens by 8 rows by 16 columns. Which columns a lane's registers stand for may be chosen freely
// as long as x and w agree: lane (g, t) takes eight consecutive ones at 8 t of every 32, so that
// each operand is one 16-byte load.
//
// Loops are unrolled little: the kernels of a layer follow each other, and what does not stay in
// the multiprocessors' instruction caches is fetched anew for every layer.
//
// A kernel takes some 3 us however little it does, so what lies between two products of a few
// tokens is done by the products: the norm before (its weight is multiplied into x, its scale into
// the sums), the addition to the residual stream or the gated activation after. And weights are on
// their way before the kernel before has ended: each lane brings what it will multiply to a ring
// of its own in shared memory, which takes no registers, so that many blocks find room beside
// those of the kernels before.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kColumns = 32;  // that a warp takes at a time

__device__ void multiply(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Loads of a lane that are on their way at a time.
constexpr int loads_ahead(int tiles, int warps) {
  if (warps == 16) return tiles == 1 ? 6 : 3;
  return tiles == 4 ? 4 : 8 / tiles;
}

/// Blocks that a multiprocessor has room for.
constexpr int blocks_at_once(int warps) { return warps == 8 ? 4 : 2; }

constexpr std::int64_t kMaxSumsBytes = 36 << 10;  // of SmallSums

/// Dynamic shared memory: the lanes' rings of weights, then x as bf16, whose rows lie half of the
/// banks apart, so that a warp's loads do not collide.
struct SmallMemory {
  int ring_bytes, cols;

  __host__ __device__ int width() const { return (cols + 63) / 64 * 64; }
  __host__ __device__ int pitch() const { return width() + 32; }
  std::int64_t bytes(std::int64_t tokens) const {
    return ring_bytes + ((tokens - 1) * pitch() + width()) * 2;
  }
};

/// What a kernel may ask for, besides its sums. GPUs other than Hopper have 99 or 163 KB for both.
std::int64_t max_small_bytes(const cuda::CudaStream& stream) {
  return std::min<std::int64_t>(128 << 10, stream.max_shared_bytes() - kMaxSumsBytes);
}

/// Brings x to shared memory, under a norm without the scales of its rows: `squares`
/// [warps][tokens] are sums of squares, of each warp's share. All threads call it.
template <int kWarps, int kTokens, bool kNorm>
__device__ void stage_x(const Product& p, Bf16* staged, int pitch, float (*squares)[kTokens]) {
  constexpr int kAtOnce = 4;  // tokens
  constexpr int kEach = kNorm ? 4 : 8;
  constexpr int kStep = kEach * 32 * kWarps;
  const auto cols = static_cast<int>(p.cols);
  const auto tokens = static_cast<int>(p.tokens);
  for (int first = 0; first < tokens; first += kAtOnce) {
    float sums[kAtOnce] = {};
    std::int64_t rows[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int m = min(first + j, tokens - 1);
      rows[j] = (kNorm && p.x_rows != nullptr ? p.x_rows[m] : m) * p.x_stride;
    }
    for (int at = static_cast<int>(threadIdx.x) * kEach; at < cols; at += kStep) {
      uint4 raw[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= tokens) break;
        const void* from =
            kNorm ? static_cast<const void*>(static_cast<const float*>(p.x) + rows[j] + at)
                  : static_cast<const Bf16*>(p.x) + rows[j] + at;
        raw[j] = *static_cast<const uint4*>(from);
      }
      float4 weight{};
      if constexpr (kNorm) weight = *reinterpret_cast<const float4*>(p.norm + at);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= tokens) break;
        Bf16* to = staged + (first + j) * pitch + at;
        if constexpr (kNorm) {
          const float4 x = *reinterpret_cast<const float4*>(&raw[j]);
          sums[j] += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
          const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(x.x * weight.x, x.y * weight.y),
                                           __floats2bfloat162_rn(x.z * weight.z, x.w * weight.w)};
          *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
        } else {
          *reinterpret_cast<uint4*>(to) = raw[j];
        }
      }
    }
    if constexpr (kNorm) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= tokens) break;
        const float sum = warp_sum(sums[j]);
        if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32][first + j] = sum;
      }
    }
  }
  __syncthreads();
}

/// Shared memory besides. What is not needed is not there: a block's size decides how many have
/// room.
template <int kTiles, int kWarps, int kTokens, bool kNorm>
struct SmallSums {
  float sums[2][kWarps][8 * kTiles][kTokens + 1];
  float squares[kWarps][kTokens];
};
template <int kTiles, int kWarps, int kTokens>
struct SmallSums<kTiles, kWarps, kTokens, false> {
  float sums[2][kWarps][8 * kTiles][kTokens + 1];
};

/// kTokens: 8 or 16, the tokens that there may be. A block takes one group of rows after the other,
/// gridDim.x apart; its ring goes on from the last loads of one to the first of the next.
template <int kTiles, int kWarps, int kTokens, bool kNorm>
__global__ void __launch_bounds__(32 * kWarps, blocks_at_once(kWarps))
    small_kernel(const __grid_constant__ Product p) {
  constexpr int kAhead = loads_ahead(kTiles, kWarps);
  constexpr int kRows = 8 * kTiles;
  constexpr int kPerThread = (kRows * kTokens + 32 * kWarps - 1) / (32 * kWarps);
  constexpr int kStep = kWarps * kColumns;  // from one load of a lane to its next
  __shared__ SmallSums<kTiles, kWarps, kTokens, kNorm> shared;
  auto& sums = shared.sums;
  float (*squares)[kTokens] = nullptr;
  if constexpr (kNorm) squares = shared.squares;
  extern __shared__ __align__(16) unsigned char dynamic[];
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const auto cols = static_cast<int>(p.cols);
  const auto tokens = static_cast<int>(p.tokens);
  const SmallMemory memory{kAhead * kTiles * 32 * kWarps * 16, cols};
  uint4* ring = reinterpret_cast<uint4*>(dynamic) + threadIdx.x;
  auto* staged = reinterpret_cast<Bf16*>(dynamic + memory.ring_bytes);
  const int pitch = memory.pitch();
  // The second half of a gated block's tiles are the rows of `up` that belong to the first half.
  const bool gated = is_gated(p.into);
  const int width = gated ? kRows / 2 : kRows;  // rows of the result
  const auto end_row = static_cast<int>(gated ? p.rows / 2 : p.rows);
  const int first_column = warp * kColumns + 8 * t;
  const auto step_rows = static_cast<int>(gridDim.x) * width;
  // Of each tile and the same for all lanes, some of which may find themselves beyond the last
  // column; less than 1 for a warp without columns.
  const int loads = (cols - warp * kColumns + kStep - 1) / kStep;
  const auto is_inside = [&](int i) { return first_column + i * kStep < cols; };

  // What is loaded next: column group `coming` of the rows that begin at coming_row.
  int coming_row = static_cast<int>(blockIdx.x) * width;
  int coming = 0;
  const Bf16* rows[kTiles];  // null beyond the last row
  const auto point_at_rows = [&] {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const bool up = gated && 2 * tile >= kTiles;
      const int row = coming_row + 8 * (up ? tile - kTiles / 2 : tile) + g;
      rows[tile] = row >= end_row
                       ? nullptr
                       : static_cast<const Bf16*>(p.w) +
                             std::int64_t{up ? row + end_row : row} * cols + first_column;
    }
  };
  // A group of copies for each load, empty ones too, so that counting them tells what has arrived.
  const auto load_next = [&](int slot) {
    if (loads > 0 && coming_row < end_row) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const bool there = rows[tile] != nullptr && is_inside(coming);
        stream_async(ring + (slot * kTiles + tile) * 32 * kWarps,
                     there ? rows[tile] + coming * kStep : static_cast<const Bf16*>(p.w), there);
      }
      if (++coming == loads) {
        coming = 0;
        coming_row += step_rows;
        point_at_rows();
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  if constexpr (kNorm) bring_near(p.norm, 4 * cols);
  point_at_rows();
#pragma unroll 1
  for (int slot = 0; slot < kAhead; ++slot) load_next(slot);
  await_inputs();
  stage_x<kWarps, kTokens, kNorm>(p, staged, pitch, squares);

  const auto scale_of = [&](int m) {
    if constexpr (!kNorm) return 1.0F;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += squares[other][m];
    return rsqrtf(sum / static_cast<float>(cols) + p.eps);
  };
  const auto store = [&](int m, int row, float value) {
    const std::int64_t at = m * p.y_stride + row;
    if (p.y_type == DType::kBF16) {
      static_cast<Bf16*>(p.y)[at] = __float2bfloat16_rn(value);
    } else {
      static_cast<float*>(p.y)[at] = value;
    }
  };
  const Bf16* x = staged + first_column + g * pitch;
  int slot = 0;
  int parity = 0;  // of two buffers of sums one is read while the other is written
  for (int first_row = static_cast<int>(blockIdx.x) * width; first_row < end_row;
       first_row += step_rows, parity ^= 1) {
    float old[kPerThread] = {};
    if (p.into == Into::kAdd) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const int i = static_cast<int>(threadIdx.x) + j * 32 * kWarps;
        if (i < kRows * tokens && first_row + i % kRows < end_row)
          old[j] = static_cast<const float*>(p.y)[i / kRows * p.y_stride + first_row + i % kRows];
      }
    }
    float acc[kTiles][4] = {};
#pragma unroll 2
    for (int i = 0; i < loads; ++i) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
      uint4 a{0, 0, 0, 0};
      uint4 b{0, 0, 0, 0};
      if (g < tokens && is_inside(i)) a = *reinterpret_cast<const uint4*>(x + i * kStep);
      if (kTokens > 8 && g + 8 < tokens && is_inside(i))
        b = *reinterpret_cast<const uint4*>(x + 8 * pitch + i * kStep);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 v = ring[(slot * kTiles + tile) * 32 * kWarps];
        multiply(acc[tile], a.x, b.x, a.y, b.y, v.x, v.y);
        multiply(acc[tile], a.z, b.z, a.w, b.w, v.z, v.w);
      }
      load_next(slot);
      slot = slot + 1 == kAhead ? 0 : slot + 1;
    }
    float (*parts)[kRows][kTokens + 1] = sums[parity];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      parts[warp][8 * tile + 2 * t][g] = acc[tile][0];
      parts[warp][8 * tile + 2 * t + 1][g] = acc[tile][1];
      if constexpr (kTokens > 8) {
        parts[warp][8 * tile + 2 * t][g + 8] = acc[tile][2];
        parts[warp][8 * tile + 2 * t + 1][g + 8] = acc[tile][3];
      }
    }
    __syncthreads();
    const auto sum_of = [&](int n, int m) {
      float sum = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) sum += parts[other][n][m];
      return sum;
    };
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * 32 * kWarps;
      const int n = gated ? i % (kRows / 2) : i % kRows;
      const int m = gated ? i / (kRows / 2) : i / kRows;
      const int row = first_row + n;
      if (m >= tokens || row >= end_row) continue;
      const float scale = scale_of(m);
      float value = sum_of(n, m) * scale + (p.bias != nullptr ? p.bias[row] : 0.0F);
      if (gated) {
        const float up =
            sum_of(n + width, m) * scale + (p.bias != nullptr ? p.bias[end_row + row] : 0.0F);
        value = (p.into == Into::kGelu ? activated<true>(value) : activated<false>(value)) * up;
      }
      store(m, row, value + old[j]);
    }
  }
}

__global__ void pause_kernel(std::int64_t nanoseconds) {
  let_next_start();
  await_inputs();
  const auto now = [] {
    std::int64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
  };
  const std::int64_t begin = now();
  while (now() - begin < nanoseconds) {
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

SmallMemory memory_for(SmallShape shape, const Product& p) {
  const int loads = loads_ahead(shape.tiles, shape.warps) * shape.tiles * 32 * shape.warps;
  return {loads * 16, static_cast<int>(p.cols)};
}

}  // namespace

std::int64_t small_product_tokens(const Product& p, SmallShape shape,
                                  const cuda::CudaStream& stream) {
  std::int64_t tokens = kSmallTokens;
  const std::int64_t most = max_small_bytes(stream);
  while (tokens > 1 && memory_for(shape, p).bytes(tokens) > most) tokens /= 2;
  return memory_for(shape, p).bytes(tokens) <= most ? tokens : 0;
}

void small_product(const Product& p, SmallShape shape, cuda::CudaStream& stream) {
  check(p.tokens <= small_product_tokens(p, shape, stream), "small_product cannot take ", p.tokens,
        " tokens of ", p.cols, " columns");
  check(p.rows <= INT_MAX && p.cols <= INT_MAX, "a matrix of [", p.rows, ", ", p.cols,
        "] is too large");
  const bool gated = is_gated(p.into);
  const auto start = [&]<int kTiles, int kWarps, int kTokens, bool kNorm>() {
    const auto kernel = small_kernel<kTiles, kWarps, kTokens, kNorm>;
    const std::int64_t most = max_small_bytes(stream);
    static const cudaError_t allowed = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most));
    cuda::check_cuda(allowed, "asking for ", most, " bytes of shared memory");
    const std::int64_t bytes = memory_for(shape, p).bytes(p.tokens);
    constexpr std::int64_t kSumsBytes = sizeof(SmallSums<kTiles, kWarps, kTokens, kNorm>);
    static_assert(kSumsBytes <= kMaxSumsBytes);
    // Each block takes 1 KB more than it asks for.
    constexpr std::int64_t kBesides = kSumsBytes + 1024;
    constexpr std::int64_t kOfMultiprocessor = 228 << 10;
    const std::int64_t at_once =
        std::clamp<std::int64_t>(kOfMultiprocessor / round_up<std::int64_t>(bytes + kBesides, 128),
                                 1, blocks_at_once(kWarps));
    // Every block takes the same number of groups of rows, or one less.
    const std::int64_t rows = gated ? p.rows / 2 : p.rows;
    const std::int64_t groups = ceil_div<std::int64_t>(rows, gated ? 4 * kTiles : 8 * kTiles);
    const std::int64_t each =
        ceil_div<std::int64_t>(groups, at_once * stream.num_multiprocessors());
    launch("linear", kernel,
           {dim3(blocks_for(groups, each)), 32 * kWarps, static_cast<std::size_t>(bytes)},
           stream.handle(), p);
  };
  const auto choose = [&]<int kTokens, bool kNorm>() {
    if (shape.tiles == 4) return start.template operator()<4, 8, kTokens, kNorm>();
    if (shape.tiles == 2 && shape.warps == 8)
      return start.template operator()<2, 8, kTokens, kNorm>();
    if (shape.tiles == 2) return start.template operator()<2, 16, kTokens, kNorm>();
    check(!gated, "a gated product needs two tiles");
    if (shape.warps == 8) return start.template operator()<1, 8, kTokens, kNorm>();
    start.template operator()<1, 16, kTokens, kNorm>();
  };
  if (p.norm != nullptr) {
    p.tokens <= 8 ? choose.template operator()<8, true>() : choose.template operator()<16, true>();
  } else {
    p.tokens <= 8 ? choose.template operator()<8, false>()
                  : choose.template operator()<16, false>();
  }
}

void pause(std::int64_t nanoseconds, cudaStream_t stream) {
  launch("a pause", pause_kernel, {dim3(1), 32}, stream, nanoseconds);
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
