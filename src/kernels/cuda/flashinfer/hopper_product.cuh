// Products of some dozens to some hundreds of tokens by Hopper's own instructions: TMA brings
// weights and tokens, one warpgroup asks for them, the others multiply (wgmma).
//
// The tokens are the tall side of a tile and the weights' rows the other one, which may have any
// multiple of eight: tiles are cut so that the multiprocessors get equal shares of a matrix. The
// blocks of a cluster share the tokens of a tile (one read of the L2 cache for `kShare` blocks)
// and, where there are too few rows for all multiprocessors, its columns: their sums are added up
// through the cluster's memory.

#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <cutlass/cuda_host_adapter.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/flashinfer/hopper_product.h"
#include "kernels/cuda/flashinfer/product_sums.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace minisgl::kernels::gpu {
namespace {

/// The instruction for 64 tokens, `rows` rows of w and 16 columns, both from shared memory.
template <int rows>
struct Wgmma;
#define MINISGL_WGMMA(rows)                                                             \
  template <>                                                                           \
  struct Wgmma<rows>                                                                    \
      : cute::SM90::GMMA::MMA_64x##rows##x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, \
                                                            cute::SM90::GMMA::Major::K> {}

/// How a block computes its tiles of kTokens tokens and kRows rows. `resident` of them have room on
/// a multiprocessor: with two, a block has brought its first weights when the kernel before ends.
template <int tokens, int rows, int split, int share, int resident>
struct ProductTile {
  static constexpr int kTokens = tokens, kRows = rows;
  static constexpr int kSplit = split;  ///< blocks that have a part of the columns each
  static constexpr int kShare = share;  ///< blocks that have the same tokens and columns
  static constexpr int kCluster = kSplit * kShare;
  static constexpr int kResident = resident;
  static constexpr int kGroups = tokens == 256 ? 2 : tokens / 64;  ///< warpgroups that multiply
  static constexpr int kBlocks = tokens / 64 / kGroups;            ///< of 64 tokens, of a group
  static constexpr int kConsumers = kGroups * 128;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kColumns = 64;  // the 128 bytes of TMA's widest swizzle
  static constexpr int kXBytes = tokens * 128, kWBytes = rows * 128;
  static constexpr int kPiece = tokens / share;  ///< of the tokens, that one block fetches
  static constexpr int kMaxShared = (228 / resident - 1) * 1024, kAlignment = 1024;
  static constexpr int kMaxStages = 20;
  static constexpr int kStages =
      std::min(kMaxStages, (kMaxShared - kAlignment - 16 * kMaxStages) / (kXBytes + kWBytes));
  static constexpr int kSharedBytes = kAlignment + 16 * kStages + kStages * (kXBytes + kWBytes);
  /// Eights of rows whose sums a block of a split adds up.
  static constexpr int kPart = rows / 8 / split;
  static_assert(rows % 8 == 0 && rows / 8 % split == 0 && tokens / share % 8 == 0 && kStages > 1);
  static_assert((split - 1) * kConsumers * kBlocks * kPart * 16 <= kStages * (kXBytes + kWBytes));
};

/// Where a warp is in the stages, which are used one after the other.
template <int kStages>
struct Ring {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

/// What the tensor cores take a matrix of 128-byte rows in shared memory to be, swizzled as TMA
/// does.
__device__ inline std::uint64_t matrix_at(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | ((address & 0x3FFFF) >> 4);
}

template <int kRows, std::size_t... kIndex>
__device__ __forceinline__ void multiply_64(std::uint64_t x, std::uint64_t w,
                                            float (&sums)[kRows / 2], bool add,
                                            std::index_sequence<kIndex...> /*all*/) {
  Wgmma<kRows>::fma(x, w, sums[kIndex]...,
                    add ? cute::SM90::GMMA::ScaleOut::One : cute::SM90::GMMA::ScaleOut::Zero);
}

/// Stores to the same place of another block of the cluster.
__device__ inline void store_to(std::uint32_t address, std::uint32_t block, float a, float b,
                                float c, float d) {
  asm volatile(
      "{\n.reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}"
      :
      : "r"(address), "r"(block), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    product_kernel(const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ CUtensorMap x_end_map,
                   const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ ProductOutput out) {
  using Full = cutlass::arch::ClusterTransactionBarrier;
  using Empty = cutlass::arch::ClusterBarrier;
  constexpr int kStages = Tile::kStages, kShare = Tile::kShare, kSplit = Tile::kSplit;
  constexpr int kRows = Tile::kRows, kTokens = Tile::kTokens;
  let_next_start();
  extern __shared__ std::byte memory[];
  const std::uint32_t unaligned = cute::cast_smem_ptr_to_uint(memory);
  std::byte* const stages =
      memory + (Tile::kAlignment - unaligned % Tile::kAlignment) % Tile::kAlignment;
  const auto x_at = [&](int stage) { return stages + stage * (Tile::kXBytes + Tile::kWBytes); };
  const auto w_at = [&](int stage) { return x_at(stage) + Tile::kXBytes; };
  auto* const full = reinterpret_cast<Full*>(x_at(kStages));
  auto* const empty = reinterpret_cast<Empty*>(full + kStages);

  const int rank = static_cast<int>(cute::block_rank_in_cluster());
  const int member = rank % kShare, part = rank / kShare;
  const int cluster = static_cast<int>(blockIdx.x) / Tile::kCluster;
  const int clusters = static_cast<int>(gridDim.x) / Tile::kCluster;
  const int first = out.column_tiles * part / kSplit, last = out.column_tiles * (part + 1) / kSplit;
  const auto token_of = [&](int item) { return item % out.token_tiles * kTokens; };
  const auto row_of = [&](int item) { return (item / out.token_tiles * kShare + member) * kRows; };

  if (threadIdx.x == 0) {
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&x_map));
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&w_map));
    for (int s = 0; s < kStages; ++s) {
      full[s].init(2);
      empty[s].init(kShare * Tile::kConsumers / 32);
    }
    cutlass::arch::fence_barrier_init();
  }
  if constexpr (Tile::kCluster > 1) {
    cute::cluster_sync();
  } else {
    __syncthreads();
  }

  // Registers of a multiprocessor: 65,536. Those of a warpgroup that multiplies are few where two
  // blocks share them.
  constexpr bool kMoveRegisters = Tile::kGroups > 1 && Tile::kResident == 1;
  constexpr int kProducerRegisters = 40;
  constexpr int kConsumerRegisters = Tile::kGroups == 3 ? 152 : 232;
  if (threadIdx.x >= Tile::kConsumers) {
    if constexpr (kMoveRegisters) cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    // What no earlier kernel has written need not wait for one: the weights' warp does not.
    const int warp = __shfl_sync(~0U, static_cast<int>(threadIdx.x - Tile::kConsumers) / 32, 0);
    Ring<kStages> ring;
    if (warp == 0 && cute::elect_one_sync()) {
      constexpr auto kHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
      const bool gated = is_gated(out.into);
      for (int item = cluster; item < out.items; item += clusters) {
        const int row = row_of(item);
        const int at = gated ? 0 : row, pair = gated ? row / 2 : 0;
        for (int k = first; k < last; ++k, ring.next()) {
          empty[ring.stage].wait(ring.phase ^ 1);
          full[ring.stage].arrive_and_expect_tx(Tile::kWBytes);
          cute::SM90_TMA_LOAD_3D::copy(&w_map, reinterpret_cast<std::uint64_t*>(&full[ring.stage]),
                                       kHint, w_at(ring.stage), k * Tile::kColumns, at, pair);
        }
      }
    } else if (warp == 1 && cute::elect_one_sync()) {
      await_inputs();
      constexpr int kPiece = Tile::kPiece;
      constexpr auto kHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST);
      for (int item = cluster; item < out.items; item += clusters) {
        const int token = token_of(item) + member * kPiece;
        const int all = min(kTokens, out.tokens - token_of(item));
        const int mine = out.tokens - token;
        const CUtensorMap* const map = mine < kPiece ? &x_end_map : &x_map;
        for (int k = first; k < last; ++k, ring.next()) {
          empty[ring.stage].wait(ring.phase ^ 1);
          full[ring.stage].arrive_and_expect_tx(static_cast<std::uint32_t>(all * 128));
          if (mine <= 0) continue;
          std::byte* const to = x_at(ring.stage) + member * kPiece * 128;
          auto* const barrier = reinterpret_cast<std::uint64_t*>(&full[ring.stage]);
          if constexpr (kShare == 1) {
            cute::SM90_TMA_LOAD_2D::copy(map, barrier, kHint, to, k * Tile::kColumns, token);
          } else {
            cute::SM90_TMA_LOAD_MULTICAST_2D::copy(
                map, barrier, static_cast<std::uint16_t>(((1 << kShare) - 1) << part * kShare),
                kHint, to, k * Tile::kColumns, token);
          }
        }
      }
    }
    __syncwarp();
    if constexpr (kSplit > 1) {
      cute::cluster_sync();
      cute::cluster_sync();
    }
  } else {
    if constexpr (kMoveRegisters) cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (out.token_tiles == 1) {
      // Rows that no token comes to: what they hold does not matter, but zeros take less power.
      constexpr int kMine = Tile::kBlocks * 64;
      for (int row = max(out.tokens, group * kMine) + static_cast<int>(threadIdx.x) % 128 / 8;
           row < (group + 1) * kMine; row += 16)
        for (int s = 0; s < kStages; ++s)
          reinterpret_cast<uint4*>(x_at(s) + row * 128)[threadIdx.x % 8] = {};
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(group));
    }
    await_inputs();  // y may be read
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto release = [&](int stage) {
      if constexpr (kShare == 1) {
        if (lane == 0) empty[stage].arrive();
      } else {
        empty[stage].arrive(static_cast<std::uint32_t>(part * kShare + lane % kShare),
                            lane < kShare ? 1 : 0);
      }
    };
    float sums[Tile::kBlocks][kRows / 2];
    const auto fence = [&] {
#pragma unroll
      for (int b = 0; b < Tile::kBlocks; ++b)
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) cute::warpgroup_fence_operand(sums[b][i]);
    };
    Ring<kStages> ring;
    for (int item = cluster; item < out.items; item += clusters) {
      int before = 0;
      for (int k = first; k < last; ++k, ring.next()) {
        full[ring.stage].wait(ring.phase);
        const std::uint64_t x = matrix_at(cute::cast_smem_ptr_to_uint(x_at(ring.stage)) +
                                          static_cast<std::uint32_t>(group * Tile::kBlocks) * 8192);
        const std::uint64_t w = matrix_at(cute::cast_smem_ptr_to_uint(w_at(ring.stage)));
        fence();
        cute::warpgroup_arrive();
#pragma unroll
        for (int c = 0; c < Tile::kColumns / 16; ++c)  // 16 columns are 2 units of 16 bytes
#pragma unroll
          for (int b = 0; b < Tile::kBlocks; ++b)
            multiply_64<kRows>(x + static_cast<std::uint64_t>(b * 512 + 2 * c),
                               w + static_cast<std::uint64_t>(2 * c), sums[b], k > first || c > 0,
                               std::make_index_sequence<kRows / 2>{});
        cute::warpgroup_commit_batch();
        if (k > first) {  // one step's multiplications go on while the next one's are begun
          cute::warpgroup_wait<1>();
          release(before);
        }
        before = ring.stage;
        fence();
      }
      cute::warpgroup_wait<0>();
      fence();
      release(before);

      const int token = token_of(item) + group * Tile::kBlocks * 64 +
                        static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
      if constexpr (kSplit == 1) {
#pragma unroll
        for (int b = 0; b < Tile::kBlocks; ++b)
          put_all<Tile::kGroups == 3 ? 4 : 8, kRows / 8>(out, sums[b], token + 64 * b,
                                                         row_of(item));
      } else {
        constexpr int kPart = Tile::kPart;
        cute::cluster_sync();  // all have done with their stages, which take others' sums now
        const std::uint32_t mine = cute::cast_smem_ptr_to_uint(stages) + threadIdx.x * 16;
        const auto place = [&](int source, int b, int e) {
          return mine + static_cast<std::uint32_t>((source * Tile::kBlocks + b) * kPart + e) *
                            (Tile::kConsumers * 16);
        };
#pragma unroll
        for (int to = 0; to < kSplit; ++to) {
          if (to == part) continue;
#pragma unroll
          for (int b = 0; b < Tile::kBlocks; ++b)
#pragma unroll
            for (int e = 0; e < kPart; ++e) {
              const float* const s = &sums[b][4 * (to * kPart + e)];
              store_to(place(part < to ? part : part - 1, b, e),
                       static_cast<std::uint32_t>(to * kShare + member), s[0], s[1], s[2], s[3]);
            }
        }
        Before<kPart> before[Tile::kBlocks];
#pragma unroll
        for (int b = 0; b < Tile::kBlocks; ++b)
          before[b].load(out, token + 64 * b, row_of(item) + 8 * part * kPart);
        cute::cluster_sync();
        const auto finish = [&]<int kTo>(std::integral_constant<int, kTo> /*part*/) {
          if (kTo != part) return;
#pragma unroll
          for (int b = 0; b < Tile::kBlocks; ++b) {
#pragma unroll
            for (int source = 0; source + 1 < kSplit; ++source)
#pragma unroll
              for (int e = 0; e < kPart; ++e) {
                float* const s = &sums[b][4 * (kTo * kPart + e)];
                float4 more;
                asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                             : "=f"(more.x), "=f"(more.y), "=f"(more.z), "=f"(more.w)
                             : "r"(place(source, b, e)));
                s[0] += more.x;
                s[1] += more.y;
                s[2] += more.z;
                s[3] += more.w;
              }
            put_sums<kTo * kPart, kPart>(out, sums[b], token + 64 * b, row_of(item), before[b]);
          }
        };
        [&]<int... kTo>(std::integer_sequence<int, kTo...> /*parts*/) {
          (finish(std::integral_constant<int, kTo>{}), ...);
        }(std::make_integer_sequence<int, kSplit>{});
      }
    }
  }
  // Nobody leaves whose barriers others may still arrive at.
  if constexpr (kShare > 1 && kSplit == 1) cute::cluster_sync();
}

inline CUtensorMap matrix_map(const void* data, int rank, const cuuint64_t* sizes,
                              const cuuint64_t* strides, const cuuint32_t* box) {
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(rank),
      const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "a matrix of ", sizes[1], " rows of ", sizes[0],
        " numbers cannot be described to TMA (CUDA error ", static_cast<int>(result), ")");
  return map;
}

template <class Tile>
void run_hopper_product(const Product& p, cudaStream_t stream) {
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const bool gated = is_gated(p.into);
  // Of a gate and up, the rows of both alternate: each third dimension's step is one of both.
  const cuuint64_t w_sizes[3] = {size(p.cols), size(gated ? 2 : p.rows),
                                 size(gated ? p.rows / 2 : 1)};
  const cuuint64_t w_strides[2] = {size((gated ? p.rows / 2 : 1) * p.cols * 2), size(p.cols * 2)};
  const cuuint32_t w_box[3] = {Tile::kColumns, gated ? 2U : Tile::kRows,
                               gated ? Tile::kRows / 2U : 1U};
  const cuuint64_t x_sizes[2] = {size(p.cols), size(p.tokens)};
  const cuuint64_t x_strides[1] = {size(p.x_stride * 2)};
  const cuuint32_t x_box[2] = {Tile::kColumns, Tile::kPiece};
  // TMA is slow where a box goes beyond a matrix: the last tokens are a box of their own.
  const cuuint32_t x_end_box[2] = {
      Tile::kColumns, static_cast<cuuint32_t>(
                          p.tokens % Tile::kPiece == 0 ? Tile::kPiece : p.tokens % Tile::kPiece)};

  const auto kernel = product_kernel<Tile>;
  static const int most_clusters = [&] {
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          Tile::kSharedBytes),
                     "asking for ", Tile::kSharedBytes, " bytes of shared memory");
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {Tile::kCluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(Tile::kCluster);
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = Tile::kSharedBytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    cuda::check_cuda(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
                     "asking for the number of clusters");
    return clusters;
  }();
  const auto row_tiles = static_cast<int>(ceil_div<std::int64_t>(p.rows, Tile::kRows));
  const auto token_tiles = static_cast<int>(ceil_div<std::int64_t>(p.tokens, Tile::kTokens));
  const int items = ceil_div(row_tiles, Tile::kShare) * token_tiles;
  // One block on a multiprocessor, so that there is room for one of the next kernel.
  const int clusters = Tile::kSplit > 1 ? items : std::min(items, most_clusters / Tile::kResident);
  const ProductOutput out{
      .y = p.y,
      .bias = p.bias,
      .stride = p.y_stride,
      .tokens = static_cast<int>(p.tokens),
      .rows = static_cast<int>(p.rows),
      .token_tiles = token_tiles,
      .items = items,
      .column_tiles = static_cast<int>(ceil_div<std::int64_t>(p.cols, Tile::kColumns)),
      .bf16 = p.y_type == DType::kBF16,
      .into = p.into};
  launch("linear on Hopper", kernel,
         {.grid = dim3(static_cast<unsigned>(clusters * Tile::kCluster)),
          .threads = Tile::kThreads,
          .shared_bytes = Tile::kSharedBytes,
          .cluster = Tile::kCluster},
         stream, matrix_map(p.x, 2, x_sizes, x_strides, x_box),
         matrix_map(p.x, 2, x_sizes, x_strides, x_end_box),
         matrix_map(p.w, 3, w_sizes, w_strides, w_box), out);
}

template <int tokens, int rows, int split, int share, int resident = 1>
constexpr HopperTile hopper_tile() {
  return {tokens, rows,     split,
          share,  resident, run_hopper_product<ProductTile<tokens, rows, split, share, resident>>};
}

}  // namespace
}  // namespace minisgl::kernels::gpu
