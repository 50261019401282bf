// The arguments of attention as kernels take them.

#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/rope.h"

namespace minisgl::kernels::gpu {

/// Strides in elements.
struct AttentionArgs {
  const void *q, *k, *v;
  void* out;
  const int *cu_seqlens_q, *cache_seqlens, *page_table;
  std::int64_t q_stride, q_head_stride, out_stride, out_head_stride;
  std::int64_t page_table_stride;
  int slot_stride, kv_head_stride;
  int num_seqs, kv_heads, group, head_dim, page_size, window;
  std::uint32_t page_inverse;  ///< 2^32 / page_size, rounded up
  float scale, softcap;

  __device__ int slot_of(int seq, int key) const {
    const int* pages = page_table + seq * page_table_stride;
    if (page_size == 1) return pages[key];
    const auto page = static_cast<int>(__umulhi(static_cast<unsigned>(key), page_inverse));
    return pages[page] * page_size + key - page * page_size;
  }
  __device__ float capped(float product) const {
    const float score = product * scale;
    return softcap == 0 ? score : softcap * tanhf(__fdividef(score, softcap));
  }
};

/// Of q and out, and of keys and values.
struct AttentionTypes {
  DType activations, kv;
};

/// Whether there are kernels on tensor cores for them: bf16 or f16, with keys and values alike or
/// fp8.
constexpr bool has_fast_types(AttentionTypes types) {
  return (types.activations == DType::kBF16 || types.activations == DType::kF16) &&
         (types.kv == types.activations || types.kv == DType::kF8E4M3);
}

/// Checks them; throws Error that says what was expected.
AttentionArgs attention_args(const PagedAttentionArgs& args);

/// One query for each sequence, of up to `max_keys` keys; has_fast_types(), heads of 64 or 128,
/// groups up to 16.
void run_decode(const AttentionArgs& job, AttentionTypes types, std::int64_t max_keys,
                TensorView workspace, cuda::CudaStream& stream);
/// The same after norms, rotation and store of `rope`, whose qkv `job`.q is the first part of; bf16
/// throughout.
void run_decode_with_rope(const AttentionArgs& job, const RopeStoreArgs& rope,
                          std::int64_t max_keys, TensorView workspace, cuda::CudaStream& stream);
/// Bytes of workspace, whatever the number of sequences.
std::int64_t decode_workspace_bytes(std::int32_t kv_heads, std::int32_t group,
                                    std::int32_t head_dim);

}  // namespace minisgl::kernels::gpu
