#include "kernels/cuda/flashinfer/ragged_decode.cuh"

namespace minisgl::kernels::gpu {

void plan_decode_64(const PlanInput& input, RaggedPlan& plan) { plan_decode<64>(input, plan); }

void run_ragged_decode_64(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream) {
  run_ragged_decode<64>(args, workspace, stream);
}

}  // namespace minisgl::kernels::gpu
