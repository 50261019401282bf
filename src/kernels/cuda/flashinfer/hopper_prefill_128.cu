#include "kernels/cuda/flashinfer/hopper_prefill.cuh"

namespace minisgl::kernels::gpu {

void hopper_prefill_128(const HopperPrefill& job, cudaStream_t stream) {
  run_hopper_prefill<128>(job, stream);
}

}  // namespace minisgl::kernels::gpu
