#include "kernels/cuda/flashinfer/ragged_decode.cuh"

namespace minisgl::kernels::gpu {

void plan_decode_128(const PlanInput& input, RaggedPlan& plan) { plan_decode<128>(input, plan); }

void run_ragged_decode_128(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream) {
  run_ragged_decode<128>(args, workspace, stream);
}

}  // namespace minisgl::kernels::gpu
