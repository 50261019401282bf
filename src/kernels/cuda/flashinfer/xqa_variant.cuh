// One kernel of XQA: for heads of HEAD_ELEMS numbers and HEAD_GRP_SIZE query heads to a KV head,
// which the file that includes this defines. The sources of FlashInfer 0.5.3, csrc/xqa, are built
// as they are, with bf16 throughout.

#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/flashinfer/xqa_variants.h"
#include "tensor/cuda/error.h"

#ifndef NDEBUG
#define NDEBUG  // the kernel has other parameters without it
#endif
#define BEAM_WIDTH 1
#define CACHE_ELEM_ENUM 0
#define INPUT_FP16 0
#define LOW_PREC_OUTPUT 0
#define SLIDING_WINDOW 0
#define SPEC_DEC 0
#define TOKENS_PER_PAGE 16
#define USE_CUSTOM_BARRIER 1
#define USE_INPUT_KV 0

#define MINISGL_JOIN_(name, dim, group) name##_d##dim##_g##group
#define MINISGL_JOIN(name, dim, group) MINISGL_JOIN_(name, dim, group)
#define MINISGL_XQA(name) MINISGL_JOIN(name, HEAD_ELEMS, HEAD_GRP_SIZE)

// Its own launchers are not used, but have external names, and one of its static objects would
// start CUDA in every process, whatever the device it is to run on.
#define launchMHA MINISGL_XQA(unused_launcher)
#define launchMHAFlashInfer MINISGL_XQA(unused_flashinfer_launcher)
#define cudaMemcpyFromSymbol(to, symbol, bytes) (*(to) = 0, cudaSuccess)
#define cudaFuncSetAttribute(kernel, attribute, value) cudaSuccess
#include <mha.cu>
#undef cudaFuncSetAttribute
#undef cudaMemcpyFromSymbol
#undef launchMHAFlashInfer
#undef launchMHA

namespace minisgl::kernels::gpu {
namespace {

/// How much the kernel takes is known to the device alone.
std::uint32_t shared_bytes() {
  static const std::uint32_t bytes = [] {
    std::uint32_t found = 0;
    cuda::check_cuda(cudaMemcpyFromSymbol(&found, smemSize, sizeof(found)),
                     "asking XQA for its shared memory");
    cuda::check_cuda(
        cudaFuncSetAttribute(kernel_mha, cudaFuncAttributeMaxDynamicSharedMemorySize, found),
        "asking for ", found, " bytes of shared memory");
    return found;
  }();
  return bytes;
}

}  // namespace

void MINISGL_XQA(prepare_xqa)() { shared_bytes(); }

void MINISGL_XQA(launch_xqa)(const XqaLaunch& job) {
  const auto head_of = [](const void* p) {
    return static_cast<GMemCacheHead*>(const_cast<void*>(p));
  };
  const KVCacheList<true> cache{head_of(job.k), head_of(job.v), job.page_table,
                                reinterpret_cast<const std::uint32_t*>(job.cache_seqlens),
                                job.pages_per_seq};
  // It may begin while the kernel before it ends, and waits for that one first (overlap.cuh).
  cudaLaunchAttribute overlapping{};
  overlapping.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlapping.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(job.blocks_per_seq, job.kv_heads, job.num_seqs);
  // Half of the warps multiply queries and keys, the other half weights and values.
  config.blockDim = dim3(warp_size * ctaShapeInWarps.x, ctaShapeInWarps.y, ctaShapeInWarps.z);
  config.dynamicSmemBytes = shared_bytes();
  config.stream = job.stream;
  config.attrs = &overlapping;
  config.numAttrs = 1;
  const float* const none = nullptr;
  cuda::check_cuda(
      cudaLaunchKernelEx(&config, kernel_mha, job.kv_heads, job.q_scale, /*qScalePtr=*/none,
                         static_cast<OutputHead*>(job.out), static_cast<const IOHead*>(job.q),
                         /*attentionSinks=*/none, cache, job.num_seqs, /*kvCacheScale=*/1.0F,
                         /*kvScalePtr=*/none, job.page_stride, job.slot_stride, job.head_stride,
                         job.semaphores, static_cast<void*>(job.scratch)),
      "launching XQA");
}

}  // namespace minisgl::kernels::gpu
