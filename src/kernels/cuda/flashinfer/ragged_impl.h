// What the files of ragged_attention() share. One file for each kernel, because each takes long to
// compile.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <exception>

#include "base/check.h"
#include "kernels/cuda/flashinfer/ragged.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"

namespace minisgl::kernels::gpu {

/// What a plan is made of.
struct PlanInput {
  RaggedShape shape;
  std::int32_t* qo_indptr;
  std::int32_t* kv_indptr;
  std::int32_t num_rows;
  bool fixed;
  std::int32_t* host;
  void* device;
  std::size_t bytes;            ///< of `host` and of `device`
  std::size_t workspace_bytes;  ///< that the kernel will have
  cudaStream_t stream;
};

/// Plans name places in the workspace relative to its begin, and only ask that it is aligned; at
/// planning time there is none yet.
inline void* unknown_workspace() { return reinterpret_cast<void*>(std::uintptr_t{1} << 20); }

/// Scratch memory may come at any place that is aligned to this.
constexpr std::uintptr_t kWorkspaceAlignment = 16;

void plan_decode_64(const PlanInput& input, RaggedPlan& plan);
void plan_decode_128(const PlanInput& input, RaggedPlan& plan);
void plan_prefill(const PlanInput& input, RaggedPlan& plan);
void run_ragged_decode_64(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream);
void run_ragged_decode_128(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream);
void run_ragged_prefill_64(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream);
void run_ragged_prefill_128(const RaggedArgs& args, std::byte* workspace, cudaStream_t stream);

/// Calls act(), with FlashInfer's exceptions as ours; what it returns is checked as well.
template <class Act>
void with_flashinfer(const char* what, const Act& act) {
  cudaError_t error = cudaSuccess;
  try {
    error = act();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(std::string("FlashInfer, ") + what + ": " + e.what());
  }
  cuda::check_cuda(error, "FlashInfer, ", what);
}

}  // namespace minisgl::kernels::gpu
