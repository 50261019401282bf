// FlashInfer's paged decode kernel without tensor cores, and its plan.

#pragma once

#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include <algorithm>

#include "kernels/cuda/flashinfer/ragged_impl.h"

namespace minisgl::kernels::gpu {
namespace {

using DecodeNumber = __nv_bfloat16;
using DecodeParams =
    flashinfer::BatchDecodeParams<DecodeNumber, DecodeNumber, DecodeNumber, std::int32_t>;
using DecodeVariant = flashinfer::DefaultAttention<false, false, false, false>;
constexpr auto kNoPosition = flashinfer::PosEncodingMode::kNone;

template <int kDim, int kGroup>
cudaError_t plan_decode_group(const PlanInput& in, flashinfer::DecodePlanInfo& info) {
  return flashinfer::DecodePlan<kDim, kNoPosition, DecodeVariant, DecodeParams>(
      unknown_workspace(), in.workspace_bytes, in.device, in.host, in.bytes, info, in.kv_indptr,
      static_cast<std::uint32_t>(in.num_rows), static_cast<std::uint32_t>(in.shape.num_heads),
      static_cast<std::uint32_t>(in.shape.page_size), in.fixed, in.stream,
      flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<kGroup, kDim, kNoPosition,
                                                                      DecodeVariant, DecodeParams>);
}

template <int kDim>
void plan_decode(const PlanInput& in, RaggedPlan& plan) {
  flashinfer::DecodePlanInfo info;
  with_flashinfer("planning of a decode step", [&] {
    switch (in.shape.num_heads / in.shape.num_kv_heads) {
      case 1: return plan_decode_group<kDim, 1>(in, info);
      case 2: return plan_decode_group<kDim, 2>(in, info);
      default: return plan_decode_group<kDim, 3>(in, info);
    }
  });
  const std::vector<std::int64_t> fields = info.ToVector();
  std::copy(fields.begin(), fields.end(), plan.fields.begin());
}

template <class T>
T* place_in(void* base, std::int64_t offset) {
  return flashinfer::GetPtrFromBaseOffset<T>(base, offset);
}

template <class Number>
flashinfer::paged_kv_t<Number, std::int32_t> paged_kv(const RaggedArgs& args) {
  const std::int64_t strides[3] = {args.kv.page_size * args.kv.slot_stride, args.kv.slot_stride,
                                   args.kv.head_stride};
  return {static_cast<std::uint32_t>(args.kv.num_heads),
          static_cast<std::uint32_t>(args.kv.page_size),
          static_cast<std::uint32_t>(args.kv.head_dim),
          static_cast<std::uint32_t>(args.plan.num_rows),
          flashinfer::QKVLayout::kNHD,
          reinterpret_cast<Number*>(const_cast<std::byte*>(args.kv.k)),
          reinterpret_cast<Number*>(const_cast<std::byte*>(args.kv.v)),
          strides,
          args.kv_indices.as<std::int32_t>(),
          args.kv_indptr.as<std::int32_t>(),
          args.kv_last_page_len.as<std::int32_t>()};
}

template <int kDim>
void run_ragged_decode(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream) {
  flashinfer::DecodePlanInfo info;
  info.FromVector({args.plan.fields.begin(), args.plan.fields.begin() + 10});
  void* const ints = args.plan_ints.data;
  DecodeParams params(reinterpret_cast<DecodeNumber*>(args.q.data), /*q_rope_offset=*/nullptr,
                      paged_kv<DecodeNumber>(args), reinterpret_cast<DecodeNumber*>(args.out.data),
                      /*lse=*/nullptr,
                      /*maybe_alibi_slopes=*/nullptr, static_cast<std::uint32_t>(args.q.dim(1)),
                      static_cast<std::int32_t>(args.q.stride(0)),
                      static_cast<std::int32_t>(args.q.stride(1)), /*window_left=*/-1,
                      /*logits_soft_cap=*/0, args.scale, /*rope_scale=*/1, /*rope_theta=*/1e4F);
  params.request_indices = place_in<std::int32_t>(ints, info.request_indices_offset);
  params.kv_tile_indices = place_in<std::int32_t>(ints, info.kv_tile_indices_offset);
  params.o_indptr = place_in<std::int32_t>(ints, info.o_indptr_offset);
  params.kv_chunk_size_ptr = place_in<std::int32_t>(ints, info.kv_chunk_size_ptr_offset);
  params.padded_batch_size = static_cast<std::uint32_t>(info.padded_batch_size);
  DecodeNumber* values = nullptr;
  float* sums = nullptr;
  if (info.split_kv) {
    values = place_in<DecodeNumber>(workspace, info.v_offset);
    sums = place_in<float>(workspace, info.s_offset);
    if (info.enable_cuda_graph)
      params.block_valid_mask = place_in<bool>(ints, info.block_valid_mask_offset);
  }
  with_flashinfer("decode", [&] {
    return flashinfer::BatchDecodeWithPagedKVCacheDispatched<kDim, kNoPosition, DecodeVariant>(
        params, values, sums, /*enable_pdl=*/false, stream);
  });
}

}  // namespace
}  // namespace minisgl::kernels::gpu
