#pragma once

namespace minisgl::kernels::gpu {

/// silu, or gelu in its approximation by tanh: see kernels/activation.h.
template <bool kGelu>
__device__ float activated(float x) {
  if constexpr (!kGelu) return x / (1.0F + __expf(-x));
  constexpr float kSqrtTwoOverPi = 0.79788456F;
  return 0.5F * x * (1.0F + tanhf(kSqrtTwoOverPi * (x + 0.044715F * x * x * x)));
}

}  // namespace minisgl::kernels::gpu
