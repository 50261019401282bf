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
  std::int64_t q_stride, q_head_stride, out_stride, out_head_stride, slot_stride, kv_head_stride;
  std::int64_t page_table_stride;
  int num_seqs, kv_heads, group, head_dim, page_size, window;
  float scale, softcap;

  __device__ std::int64_t slot_of(int seq, int key) const {
    const int* pages = page_table + seq * page_table_stride;
    if (page_size == 1) return pages[key];
    return std::int64_t{pages[key / page_size]} * page_size + key % page_size;
  }
  __device__ float capped(float product) const {
    const float score = product * scale;
    return softcap == 0 ? score : softcap * tanhf(score / softcap);
  }
};

/// Checks them; throws Error that says what was expected.
AttentionArgs attention_args(const PagedAttentionArgs& args);

/// One query for each sequence, of up to `max_keys` keys; bf16, heads of 64 or 128, groups up to
/// 16.
void run_decode(const AttentionArgs& job, std::int64_t max_keys, TensorView workspace,
                cuda::CudaStream& stream);
/// The same after norms, rotation and store of `rope`, whose qkv `job`.q is the first part of.
void run_decode_with_rope(const AttentionArgs& job, const RopeStoreArgs& rope,
                          std::int64_t max_keys, TensorView workspace, cuda::CudaStream& stream);
/// Bytes of workspace, whatever the number of sequences.
std::int64_t decode_workspace_bytes(std::int32_t kv_heads, std::int32_t group,
                                    std::int32_t head_dim);

}  // namespace minisgl::kernels::gpu
