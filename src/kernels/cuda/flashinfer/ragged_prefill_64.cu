#include "kernels/cuda/flashinfer/ragged_prefill.cuh"

namespace minisgl::kernels::gpu {

void run_ragged_prefill_64(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream) {
  run_ragged_prefill<64>(args, workspace, stream);
}

}  // namespace minisgl::kernels::gpu
