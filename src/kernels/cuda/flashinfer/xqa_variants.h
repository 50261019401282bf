// The kernels of XQA, each a translation unit of its own that CMake writes (cmake/flashinfer.cmake)
// around xqa_variant.cuh.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace minisgl::kernels::gpu {

/// Strides of keys and values in heads.
struct XqaLaunch {
  const void *q, *k, *v;
  void* out;
  const std::int32_t *page_table, *cache_seqlens;
  std::uint32_t num_seqs, kv_heads, pages_per_seq, blocks_per_seq;
  std::uint32_t page_stride, slot_stride, head_stride;
  float q_scale;  ///< times 1 / sqrt(head_dim)
  std::uint32_t* semaphores;
  std::byte* scratch;
  cudaStream_t stream;
};

struct XqaKernel {
  void (*prepare)() = nullptr;
  void (*launch)(const XqaLaunch&) = nullptr;
};

/// f(head_dim, group) for all that there is: the same lists as in cmake/flashinfer.cmake.
// clang-format off
#define MINISGL_XQA_GROUPS(f, dim)                      \
  f(dim, 1) f(dim, 2) f(dim, 3) f(dim, 4)               \
  f(dim, 5) f(dim, 6) f(dim, 7) f(dim, 8)
#define MINISGL_XQA_KERNELS(f) MINISGL_XQA_GROUPS(f, 64) MINISGL_XQA_GROUPS(f, 128)
// clang-format on

#define MINISGL_XQA_DECLARE(dim, group) \
  void prepare_xqa_d##dim##_g##group(); \
  void launch_xqa_d##dim##_g##group(const XqaLaunch& job);
MINISGL_XQA_KERNELS(MINISGL_XQA_DECLARE)
#undef MINISGL_XQA_DECLARE

}  // namespace minisgl::kernels::gpu
