// CUDA's errors as ours.

#pragma once

#include <cuda_runtime_api.h>

#include "base/check.h"

namespace minisgl::cuda {

/// Throws Error with CUDA's name and words for `error` and what was asked for, unless it is
/// success. `args` are evaluated always.
template <class... Args>
void check_cuda(cudaError_t error, const Args&... args) {
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // or it is reported again by the next launch
  check(false, args..., ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

/// After a kernel launch: throws Error naming the kernel if it could not be launched.
inline void check_launch(const char* kernel) {
  check_cuda(cudaGetLastError(), "launching ", kernel);
}

}  // namespace minisgl::cuda
