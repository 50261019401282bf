// Random weights, for benchmarks.

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/split_mix.h"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 2048;

/// Four elements a thread at a time: those of one number of the generator.
__global__ void random_kernel(const std::uint16_t* choices, std::uint64_t seed, std::uint16_t* out,
                              std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; 4 * i < count;
       i += stride) {
    const std::uint64_t bits = split_mix(seed, static_cast<std::uint64_t>(i));
    for (int j = 0; j < 4 && 4 * i + j < count; ++j)
      out[4 * i + j] = choices[(bits >> (16 * j)) & 0xFFFF];
  }
}

}  // namespace

void fill_random_now(TensorView out, TensorView choices, std::uint64_t seed) {
  check(out.is_contiguous() && bytes_of(out.dtype, 1) == 2,
        "fill_random_now fills contiguous numbers of 2 bytes");
  check_tensor(choices, {1 << 16}, out.dtype, "choices");
  check(!out.device.is_cpu() && out.device == choices.device,
        "fill_random_now works in a GPU's memory");
  if (out.numel() == 0) return;
  random_kernel<<<kBlocks, kThreads, 0, cudaStreamLegacy>>>(
      reinterpret_cast<const std::uint16_t*>(choices.data), seed,
      reinterpret_cast<std::uint16_t*>(out.data), out.numel());
  check_launch("fill_random_now");
  cuda::check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "making random numbers");
}

}  // namespace minisgl::kernels::gpu
