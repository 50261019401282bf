// FlashInfer's paged prefill kernel of FlashAttention-2's shape.

#pragma once

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include "kernels/cuda/flashinfer/ragged_impl.h"

namespace minisgl::kernels::gpu {
namespace {

using PrefillNumber = __nv_bfloat16;
using PrefillParams =
    flashinfer::BatchPrefillPagedParams<PrefillNumber, PrefillNumber, PrefillNumber, std::int32_t>;
using PrefillVariant = flashinfer::DefaultAttention<false, false, false, false>;

template <class T>
T* place_of(void* base, std::int64_t offset) {
  return flashinfer::GetPtrFromBaseOffset<T>(base, offset);
}

PrefillParams prefill_params(const RaggedArgs& args, const flashinfer::PrefillPlanInfo& info) {
  const std::int64_t strides[3] = {args.kv.page_size * args.kv.slot_stride, args.kv.slot_stride,
                                   args.kv.head_stride};
  const flashinfer::paged_kv_t<PrefillNumber, std::int32_t> kv(
      static_cast<std::uint32_t>(args.kv.num_heads), static_cast<std::uint32_t>(args.kv.page_size),
      static_cast<std::uint32_t>(args.kv.head_dim), static_cast<std::uint32_t>(args.plan.num_rows),
      flashinfer::QKVLayout::kNHD,
      reinterpret_cast<PrefillNumber*>(const_cast<std::byte*>(args.kv.k)),
      reinterpret_cast<PrefillNumber*>(const_cast<std::byte*>(args.kv.v)), strides,
      args.kv_indices.as<std::int32_t>(), args.kv_indptr.as<std::int32_t>(),
      args.kv_last_page_len.as<std::int32_t>());
  PrefillParams params(reinterpret_cast<PrefillNumber*>(args.q.data), kv,
                       /*maybe_custom_mask=*/nullptr, args.qo_indptr.as<std::int32_t>(),
                       /*maybe_mask_indptr=*/nullptr, /*maybe_q_rope_offset=*/nullptr,
                       reinterpret_cast<PrefillNumber*>(args.out.data), /*lse=*/nullptr,
                       /*maybe_alibi_slopes=*/nullptr, static_cast<std::uint32_t>(args.q.dim(1)),
                       static_cast<std::int32_t>(args.q.stride(0)),
                       static_cast<std::int32_t>(args.q.stride(1)), /*window_left=*/-1,
                       /*logits_soft_cap=*/0, args.scale, /*rope_scale=*/1, /*rope_theta=*/1e4F);
  void* const ints = args.plan_ints.data;
  params.request_indices = place_of<std::int32_t>(ints, info.request_indices_offset);
  params.qo_tile_indices = place_of<std::int32_t>(ints, info.qo_tile_indices_offset);
  params.kv_tile_indices = place_of<std::int32_t>(ints, info.kv_tile_indices_offset);
  params.o_indptr = place_of<std::int32_t>(ints, info.o_indptr_offset);
  params.kv_chunk_size_ptr = place_of<std::int32_t>(ints, info.kv_chunk_size_ptr_offset);
  params.padded_batch_size = static_cast<std::uint32_t>(info.padded_batch_size);
  params.max_total_num_rows = static_cast<std::uint32_t>(info.total_num_rows);
  if (info.split_kv) {
    params.merge_indptr = place_of<std::int32_t>(ints, info.merge_indptr_offset);
    if (info.enable_cuda_graph)
      params.block_valid_mask = place_of<bool>(ints, info.block_valid_mask_offset);
  }
  if (info.enable_cuda_graph)
    params.total_num_rows = place_of<std::uint32_t>(ints, info.total_num_rows_offset);
  return params;
}

template <int kDim, int kTile>
cudaError_t run_ragged_tiles(const PrefillParams& params, PrefillNumber* values, float* sums,
                             cudaStream_t stream) {
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      kTile, kDim, kDim, flashinfer::PosEncodingMode::kNone, /*USE_FP16_QK_REDUCTION=*/false,
      flashinfer::MaskMode::kCausal, PrefillVariant>(params, values, sums, /*enable_pdl=*/false,
                                                     stream);
}

template <int kDim>
void run_ragged_prefill(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream) {
  flashinfer::PrefillPlanInfo info;
  info.FromVector({args.plan.fields.begin(), args.plan.fields.end()});
  const PrefillParams params = prefill_params(args, info);
  auto* values = info.split_kv ? place_of<PrefillNumber>(workspace, info.v_offset) : nullptr;
  auto* sums = info.split_kv ? place_of<float>(workspace, info.s_offset) : nullptr;
  with_flashinfer("prefill", [&] {
    switch (info.cta_tile_q) {
      case 16: return run_ragged_tiles<kDim, 16>(params, values, sums, stream);
      case 64: return run_ragged_tiles<kDim, 64>(params, values, sums, stream);
      default: return run_ragged_tiles<kDim, 128>(params, values, sums, stream);
    }
  });
}

}  // namespace
}  // namespace minisgl::kernels::gpu
