// FlashInfer's PrefillWithKVCacheKernel takes its parts as template arguments. Those here are ours:
//
//   PagedLoader      keys and values come by TMA, straight from the pool
//   QueueScheduler   blocks take tiles from a queue, the heaviest first, as they compute the last
//   Softmax          -inf for what is not seen, whatever the size of the scores
//   SafeEpilogue     waits until outputs are there before it reads them
//
// The names of their members are those that the kernel asks for. Source of the interface:
// FlashInfer 0.5.3, attention/hopper/{prefill_sm90,mainloop,tile_scheduler,attention_updater}.cuh.

#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variant_helper.cuh>

#include "base/check.h"
#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/flashinfer/hopper_epilogue.cuh"
#include "kernels/cuda/flashinfer/hopper_prefill.h"
#include "tensor/cuda/error.h"

namespace minisgl::kernels::gpu {
namespace {

using cute::_, cute::_0, cute::_1, cute::Int;
using Number = cutlass::bfloat16_t;

__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The running softmax of the rows that a thread holds. (FlashInfer's own puts -5e4 in place of
/// what is not seen, which is more than the scores of some models.)
template <int kRows>
class Softmax {
 public:
  static constexpr float fill_value = -INFINITY;
  using Rows = decltype(cute::make_tensor<float>(cute::Shape<Int<kRows>>{}));

  __device__ explicit Softmax(float scale_log2) : scale_(scale_log2) { cute::clear(factors_); }

  template <bool kFirst, class Scores>
  __device__ __forceinline__ void update(Scores& accumulator) {
    auto scores = cute::make_tensor(accumulator.data(),
                                    flashinfer::convert_layout_acc_rowcol(accumulator.layout()));
    constexpr int kColumns = decltype(cute::size<1>(scores))::value;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float best = kFirst ? -INFINITY : maxima_(r);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) best = fmaxf(best, scores(r, c));
      best = fmaxf(best, __shfl_xor_sync(~0U, best, 2));
      best = fmaxf(best, __shfl_xor_sync(~0U, best, 1));
      const float base = best == -INFINITY ? 0.0F : best * scale_;  // nothing seen so far
      float sum = 0;
      if constexpr (!kFirst) {
        factors_(r) = power_of_2(fmaf(maxima_(r), scale_, -base));
        sum = sums_(r) * factors_(r);
      }
      maxima_(r) = best;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        scores(r, c) = power_of_2(fmaf(scores(r, c), scale_, -base));
        sum += scores(r, c);
      }
      sums_(r) = sum;
    }
  }

  /// After the last tile: rescale_o() then divides by the sums.
  template <class Scores>
  __device__ __forceinline__ void finalize(Scores& /*accumulator*/, float /*scale*/ = 1) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sums_(r) += __shfl_xor_sync(~0U, sums_(r), 2);
      sums_(r) += __shfl_xor_sync(~0U, sums_(r), 1);
      factors_(r) = 1.0F / sums_(r);
    }
  }

  template <class Output>
  __device__ __forceinline__ void rescale_o(Output& accumulator) {
    auto out = cute::make_tensor(accumulator.data(),
                                 flashinfer::convert_layout_acc_rowcol(accumulator.layout()));
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < cute::size<1>(out); ++c) out(r, c) *= factors_(r);
  }

  __device__ __forceinline__ Rows get_lse() const { return sums_; }  // never stored

 private:
  Rows maxima_, sums_, factors_;
  float scale_;
};

struct PlainVariant {
  float scale_log2;

  template <class Params, class Place>
  __device__ PlainVariant(const Params& params, const Place& /*place*/)
      : scale_log2(params.additional_params.scale_log2) {}

  template <int kRows>
  __device__ auto GetAttentionUpdater() {
    return Softmax<kRows>(scale_log2);
  }
  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx,
                            { return logits; })
};

template <int kDim>
using TraitsBase = flashinfer::AttentionKernelTraits<
    /*USE_TMA_LOAD_KV=*/true, kDim, kDim, /*CTA_Q=*/hopper_tile_queries(kDim), /*CTA_KV=*/128,
    /*NUM_STAGES=*/2, Number, Number, Number, std::int32_t, PlainVariant>;

template <int kDim>
struct Traits : TraitsBase<kDim> {
  struct SharedStorage : TraitsBase<kDim>::SharedStorage {
    int next_item;  ///< of QueueScheduler
  };
};

/// Work items are (tile, head) pairs, the heads of a tile one after the other, so that blocks which
/// work at the same time read the same keys. A block's first item is its own number; the next one
/// is drawn by the loading warp while the others compute, and handed over in shared memory.
template <class Traits>
struct QueueScheduler {
  struct Params {
    const PrefillTile* tiles;
    const int *cu_seqlens_q, *cache_seqlens;
    const int* page_offsets;  ///< or null: rows of page_table_stride
    std::uint32_t* counter;
    std::int32_t page_table_stride;
    int num_items;
    cutlass::FastDivmod heads, group;
  };

  struct WorkTileInfo {
    int item;
    int next = 0;

    __device__ bool is_valid(const Params& params) const { return item < params.num_items; }

    /// (tile, head, KV head, first token, place in the page table, queries, keys, sequence)
    __device__ auto get_block_coord(const Params& params) const {
      int tile, head;
      params.heads(tile, head, item);
      const PrefillTile at = params.tiles[tile];
      const int begin = params.cu_seqlens_q[at.seq];
      return cute::tuple{at.index,
                         head,
                         static_cast<int>(params.group.divide(head)),
                         begin,
                         params.page_offsets == nullptr ? at.seq * params.page_table_stride
                                                        : params.page_offsets[at.seq],
                         params.cu_seqlens_q[at.seq + 1] - begin,
                         params.cache_seqlens[at.seq],
                         at.seq};
    }
  };

  __device__ WorkTileInfo get_initial_work(const Params& /*params*/) const {
    return {static_cast<int>(blockIdx.x)};
  }
  __device__ void init_consumer() const { arrive(kEmpty); }

  /// As many items are drawn as there are, so that the counter, which wraps, ends as it began.
  __device__ void prefetch_next_work(const Params& params, WorkTileInfo& work) const {
    if (threadIdx.x % 32 == 0)
      work.next = static_cast<int>(
          atomicInc(params.counter, static_cast<unsigned>(params.num_items) - 1) + gridDim.x);
  }
  __device__ void broadcast_next_work(WorkTileInfo& work) const {
    sync(kEmpty);
    if (threadIdx.x % 32 == 0) *place() = work.next;
    arrive(kFull);
  }

  template <bool is_producer>
  __device__ WorkTileInfo get_next_work(const Params& /*params*/, const WorkTileInfo& work) const {
    if constexpr (is_producer) return {__shfl_sync(~0U, work.next, 0)};
    sync(kFull);
    const int item = *place();
    arrive(kEmpty);
    return {item};
  }

 private:
  // Beside those of flashinfer::NamedBarriers that its TMA kernels use, which are 0 to 4.
  static constexpr int kEmpty = 6, kFull = 7;
  static constexpr int kThreads = Traits::NUM_MMA_THREADS + Traits::NUM_PRODUCER_THREADS;

  __device__ static void sync(int barrier) {
    cutlass::arch::NamedBarrier::sync(kThreads, static_cast<std::uint32_t>(barrier));
  }
  __device__ static void arrive(int barrier) {
    cutlass::arch::NamedBarrier::arrive(kThreads, static_cast<std::uint32_t>(barrier));
  }
  __device__ static volatile int* place() {
    extern __shared__ char shared_memory[];
    return &reinterpret_cast<typename Traits::SharedStorage*>(shared_memory)->next_item;
  }
};

/// Brings the queries of a tile, and keys and values from the last tile to the first.
template <class Traits>
struct PagedLoader {
  static constexpr int CTA_Q = Traits::CTA_Q, CTA_KV = Traits::CTA_KV;
  static constexpr int kDim = Traits::HEAD_DIM_QK;
  static constexpr bool USE_TMA_LOAD_KV = true;
  using MainloopPipeline = typename Traits::MainloopPipeline;
  using PipelineState = typename MainloopPipeline::PipelineState;
  using WarpScheduler = flashinfer::WarpScheduler<Traits, /*UseSchedulerBarrier=*/true>;
  using Barrier = typename MainloopPipeline::ProducerBarrierType;

  using SmemLayoutQ = typename Traits::SmemLayoutQ;
  using SmemLayoutK = typename Traits::SmemLayoutK;
  using QueryTile = cute::Shape<Int<CTA_Q>, Int<kDim>>;
  using Stride = cute::Shape<std::int64_t, _1, std::int64_t>;
  using Layout = cute::Layout<cute::Shape<std::int32_t, std::int32_t, std::int32_t>, Stride>;
  using QueryCopy = decltype(cute::make_tma_copy(
      cute::SM90_TMA_LOAD{},
      cute::make_tensor(cute::make_gmem_ptr(static_cast<const Number*>(nullptr)),
                        cute::repeat_like(Stride{}, std::int32_t(0)), Stride{}),
      SmemLayoutQ{}, QueryTile{}, _1{}));

  static constexpr std::uint32_t kQueryBytes = CTA_Q * kDim * sizeof(Number);
  static constexpr std::uint32_t TmaTransactionBytesK = CTA_KV * kDim * sizeof(Number);
  static constexpr std::uint32_t TmaTransactionBytesV = TmaTransactionBytesK;

  /// A tile lies in shared memory as columns of 64 numbers, each with the swizzle of TMA's 128-byte
  /// boxes; so a box of keys is one piece of it.
  static constexpr int kColumn = 64;
  static constexpr auto kPlaces = decltype(SmemLayoutK{}.layout_b()){};  // before the swizzle
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(SmemLayoutK{}.layout_a())>,
                               cute::Swizzle<3, 4, 3>>);
  static_assert(kPlaces(1, 0, 0) == kColumn &&
                kPlaces(CTA_KV - 1, 0, 0) == (CTA_KV - 1) * kColumn &&
                kPlaces(0, 0, 1) == CTA_KV * kDim && kPlaces(0, 8, 0) == 8 &&
                kPlaces(0, kDim - kColumn, 0) == (kDim / kColumn - 1) * CTA_KV * kColumn);

  struct Params {
    CUtensorMap keys, values;  ///< [slots, KV heads, head_dim], boxes [box_keys, 1, 64]
    QueryCopy query_copy;
    Layout query_layout;
    const int* page_table;
    int page_size, box_keys, num_slots;
    int window_left;
    struct {
      float scale_log2;
    } additional_params;
  };

  __device__ static void prefetch_tma_descriptors(const Params& params) {
    cute::prefetch_tma_descriptor(params.query_copy.get_tma_descriptor());
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&params.keys));
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&params.values));
  }

  __device__ int get_num_kv_tiles(const Params& /*params*/, int tile, int queries, int keys) const {
    const int seen = min(keys, (tile + 1) * CTA_Q + keys - queries);
    return (seen + CTA_KV - 1) / CTA_KV;
  }

  template <bool kWindow, class Place, class Scheduler, class Storage>
  __device__ void load(const Params& params, MainloopPipeline pipeline_k,
                       MainloopPipeline pipeline_v, PipelineState& write_k, PipelineState& write_v,
                       Storage& storage, Scheduler& scheduler,
                       const typename Scheduler::Params& scheduler_params,
                       typename Scheduler::WorkTileInfo& work, const Place& place, int work_idx) {
    auto [tile, head, kv_head, first_token, table_offset, queries, keys, seq] = place;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int boxes = CTA_KV / params.box_keys;
    const int* const pages = params.page_table + table_offset;

    // Lane i brings box i of a tile. Boxes behind the last key are read from behind the pool's last
    // slot, where TMA finds zeros.
    const auto slot_of = [&](int kv_tile) {
      const int key = kv_tile * CTA_KV + lane * params.box_keys;
      return lane < boxes && kv_tile >= 0 && key < keys
                 ? pages[key / params.page_size] * params.page_size + key % params.page_size
                 : params.num_slots;
    };
    const auto copy = [&](const CUtensorMap& map, Barrier* barrier, Number* to, int slot) {
      if (lane >= boxes) return;
#pragma unroll
      for (int column = 0; column < kDim / kColumn; ++column)
        cute::SM90_TMA_LOAD_3D::copy(
            &map, reinterpret_cast<std::uint64_t*>(barrier),
            static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
            to + column * CTA_KV * kColumn + lane * params.box_keys * kColumn, column * kColumn,
            kv_head, slot);
    };
    const auto load_keys = [&](int slot) {
      if (lane == 0) pipeline_k.producer_acquire(write_k);
      __syncwarp();
      copy(params.keys, pipeline_k.producer_get_barrier(write_k),
           storage.smem_k.data() + write_k.index() * CTA_KV * kDim, slot);
      ++write_k;
    };
    const auto load_values = [&](int slot) {
      if (lane == 0) pipeline_v.producer_acquire(write_v);
      __syncwarp();
      copy(params.values, pipeline_v.producer_get_barrier(write_v),
           storage.smem_v.data() + write_v.index() * CTA_KV * kDim, slot);
      ++write_v;
    };

    int kv_tile = get_num_kv_tiles(params, tile, queries, keys) - 1;
    int slot = slot_of(kv_tile);
    int next_slot = slot_of(kv_tile - 1);
    load_keys(slot);
    load_queries(params, storage, tile, head, first_token, queries);
    // The outputs of the last work item lie where the values go.
    storage.barrier_O.wait((work_idx + 1) % 2);
    for (; kv_tile > 0; --kv_tile) {
      const int after_next = slot_of(kv_tile - 2);
      load_keys(next_slot);
      load_values(slot);
      slot = next_slot;
      next_slot = after_next;
    }
    scheduler.prefetch_next_work(scheduler_params, work);
    load_values(slot);
    scheduler.broadcast_next_work(work);
  }

  /// Waits until all that was loaded has been used.
  __device__ void load_tail(MainloopPipeline pipeline_k, MainloopPipeline pipeline_v,
                            PipelineState& write_k, PipelineState& write_v) {
    if (threadIdx.x % 32 == 0) {
      pipeline_k.producer_tail(write_k);
      pipeline_v.producer_tail(write_v);
    }
  }

 private:
  template <class Storage>
  __device__ static void load_queries(const Params& params, Storage& storage, int tile, int head,
                                      int first_token, int queries) {
    auto to = cute::make_tensor(cute::make_smem_ptr(storage.smem_q.data()), SmemLayoutQ{});
    auto all = params.query_copy.get_tma_tensor(params.query_layout.shape());
    auto from =
        flashinfer::get_local_tile_tensor(all, QueryTile{}, head, first_token, queries)(_, _, tile);
    auto to_1 = cute::make_tensor(to.data(), cute::make_layout(to.layout(), cute::Layout<_1>{}));
    auto from_1 =
        cute::make_tensor(from.data(), cute::make_layout(from.layout(), cute::Layout<_1>{}));
    auto [source, target] =
        cute::tma_partition(params.query_copy, _0{}, cute::Layout<_1>{},
                            cute::group_modes<0, 2>(to_1), cute::group_modes<0, 2>(from_1));
    // Until the last work item's queries have been used.
    cutlass::arch::NamedBarrier::sync(
        Traits::NUM_MMA_THREADS + Traits::NUM_PRODUCER_THREADS,
        static_cast<std::uint32_t>(flashinfer::NamedBarriers::kQueryEmpty));
    if (threadIdx.x % 32 == 0) {
      storage.barrier_Q.arrive_and_expect_tx(kQueryBytes);
      cute::copy(params.query_copy.with(
                     reinterpret_cast<cutlass::arch::ClusterTransactionBarrier::ValueType&>(
                         storage.barrier_Q),
                     /*mcast_mask=*/0),
                 source, target);
    }
  }
};

/// Keys or values of the pool, in boxes of `box_keys` keys of one head.
CUtensorMap tensor_map(const void* pool, const HopperPrefill& job, int box_keys) {
  const AttentionArgs& args = job.args;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(args.head_dim),
                               static_cast<cuuint64_t>(args.kv_heads),
                               static_cast<cuuint64_t>(job.num_slots)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(args.kv_head_stride) * sizeof(Number),
                                 static_cast<cuuint64_t>(args.slot_stride) * sizeof(Number)};
  const cuuint32_t box[3] = {64, 1, static_cast<cuuint32_t>(box_keys)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(pool), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "a KV pool of ", job.num_slots, " slots, ", strides[1],
        " bytes apart, cannot be described to TMA (CUDA error ", static_cast<int>(result), ")");
  return map;
}

template <int kDim>
void run_hopper_prefill(const HopperPrefill& job, cudaStream_t stream) {
  using Kind = Traits<kDim>;
  using Loader = PagedLoader<Kind>;
  using Scheduler = QueueScheduler<Kind>;
  using Epilogue = SafeEpilogue<Kind>;
  const AttentionArgs& args = job.args;
  const int heads = args.kv_heads * args.group;
  const int box_keys = std::min(args.page_size, Kind::CTA_KV);
  const auto layout = [&](std::int64_t stride, std::int64_t head_stride) {
    return flashinfer::get_gmem_layout(job.num_tokens, heads, kDim, stride, head_stride);
  };
  const auto q_layout = layout(args.q_stride, args.q_head_stride);
  const typename Loader::Params loader{
      .keys = tensor_map(args.k, job, box_keys),
      .values = tensor_map(args.v, job, box_keys),
      .query_copy = cute::make_tma_copy(
          cute::SM90_TMA_LOAD{},
          cute::make_tensor(cute::make_gmem_ptr(static_cast<const Number*>(args.q)), q_layout),
          typename Kind::SmemLayoutQ{}, typename Loader::QueryTile{}, _1{}),
      .query_layout = q_layout,
      .page_table = args.page_table,
      .page_size = args.page_size,
      .box_keys = box_keys,
      .num_slots = job.num_slots,
      .window_left = -1,
      .additional_params = {args.scale * 1.4426950408889634F}};
  const typename Epilogue::Params epilogue = Epilogue::to_underlying_arguments(
      {static_cast<Number*>(args.out), layout(args.out_stride, args.out_head_stride), nullptr,
       flashinfer::get_lse_gmem_layout(job.num_tokens, heads)});
  const typename Scheduler::Params scheduler{
      .tiles = job.tiles,
      .cu_seqlens_q = args.cu_seqlens_q,
      .cache_seqlens = args.cache_seqlens,
      .page_offsets = job.page_offsets,
      .counter = job.counter,
      .page_table_stride = static_cast<std::int32_t>(args.page_table_stride),
      .num_items = job.num_tiles * heads,
      .heads = cutlass::FastDivmod(heads),
      .group = cutlass::FastDivmod(args.group)};

  const auto kernel =
      flashinfer::PrefillWithKVCacheKernel<Loader, Epilogue, Kind, /*LEFT_SLIDING_WINDOW=*/false,
                                           /*CAUSAL=*/true, Scheduler>;
  constexpr int kShared = sizeof(typename Kind::SharedStorage);
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cuda::check_cuda(allowed, "asking for ", kShared, " bytes of shared memory");
  const int blocks = std::min(job.num_multiprocessors, scheduler.num_items);
  kernel<<<blocks, Kind::NUM_WARPS * 32, kShared, stream>>>(loader, epilogue, scheduler);
  cuda::check_cuda(cudaGetLastError(), "launching paged_attention (Hopper)");
}

}  // namespace
}  // namespace minisgl::kernels::gpu
