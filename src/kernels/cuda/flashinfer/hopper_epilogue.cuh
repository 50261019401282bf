// The last part of FlashInfer's prefill kernel: the outputs of a tile of queries on their way to
// memory.

#pragma once

#include <flashinfer/attention/hopper/epilogue.cuh>

namespace minisgl::kernels::gpu {
namespace {

/// FlashInfer's own (0.5.3), with a barrier more. Outputs go through shared memory, so that rows
/// are written whole, by other warps than have computed them; there, only the last of the warps
/// waits until all is in shared memory before it reads. compute-sanitizer delays warps enough for
/// wrong rows to be seen.
template <class Traits>
struct SafeEpilogue : flashinfer::CollectiveEpilogue<Traits> {
  using Base = flashinfer::CollectiveEpilogue<Traits>;

  template <class Output, class Sums, class Storage, class TiledMma, class Place>
  __device__ void store(const typename Base::Params& params, const Output& output,
                        const Sums& /*sums*/, Storage& storage, TiledMma mma, int thread,
                        const Place& place) {
    auto [tile, head, kv_head, first_token, table_offset, queries, keys, seq] = place;
    auto shared =
        cute::make_tensor(cute::make_smem_ptr(storage.smem_o.data()), typename Base::SmemLayoutO{});
    auto to_shared = cute::make_tiled_copy_C(typename Base::SmemCopyAtomO{}, mma);
    auto mine = to_shared.get_thread_slice(thread);
    auto rounded = flashinfer::convert_type<typename Base::DTypeO>(output);
    sync();  // all have read the values, whose place the outputs take
    cute::copy(to_shared, mine.retile_S(rounded), mine.partition_D(shared));
    cutlass::arch::fence_view_async_shared();  // before the next values come by TMA
    sync();                                    // all outputs are there
    flashinfer::write_O<Base::NUM_COPY_THREADS>(
        params.O_ptr, typename Base::TiledCopyO{}, params.layout_O,
        cute::select<0, 1>(typename Base::TileShape_PDV{}), shared, thread, tile, head, first_token,
        queries, /*write_warp_idx=*/0);
  }

 private:
  __device__ static void sync() {
    cutlass::arch::NamedBarrier::sync(
        Base::NUM_MMA_THREADS, static_cast<std::uint32_t>(flashinfer::NamedBarriers::kValueEmpty));
  }
};

}  // namespace
}  // namespace minisgl::kernels::gpu
