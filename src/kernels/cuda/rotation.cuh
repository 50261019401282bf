// Norm and rotation of a head's numbers, for the kernels that do both. With roundings that are
// written out, so that a key has the same bits whichever of them stored it.

#pragma once

#include <cuda_runtime.h>

namespace minisgl::kernels::gpu {

/// Numbers d and d + head_dim / 2 of a head, which are turned together.
struct Pair {
  float low, high;
};

/// What a pair adds to its head's sum of squares. The sum's order: four neighbours as (0 + 1) +
/// (2 + 3), then the fours of a head, those that lie furthest apart first.
__device__ inline float square_of(Pair x) {
  return __fmaf_rn(x.low, x.low, __fmul_rn(x.high, x.high));
}

/// What a head's numbers are multiplied with, beside the norm's weights.
__device__ inline float norm_scale(float sum_of_squares, int head_dim, float eps) {
  return rsqrtf(__fadd_rn(__fdiv_rn(sum_of_squares, static_cast<float>(head_dim)), eps));
}

__device__ inline Pair normed(Pair x, float scale, Pair weight) {
  return {__fmul_rn(x.low, __fmul_rn(scale, weight.low)),
          __fmul_rn(x.high, __fmul_rn(scale, weight.high))};
}

__device__ inline Pair rotated(Pair x, float cos, float sin) {
  return {__fmaf_rn(x.low, cos, -__fmul_rn(x.high, sin)),
          __fmaf_rn(x.high, cos, __fmul_rn(x.low, sin))};
}

}  // namespace minisgl::kernels::gpu
