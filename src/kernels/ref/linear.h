// The plain product, for tests: one loop in double over weights as they lie in the file.

#pragma once

#include "tensor/tensor.h"

namespace minisgl::kernels {

/// y[m, n] = sum_k x[m, k] * weight[n, k] (+ bias[n]), summed in double and rounded once.
///
/// Shapes   x [M, K] f32, weight [N, K] of any weight type, bias [N] f32 or empty, y [M, N] f32;
///          rows of x and y may be strided
/// Timing   runs at once on the calling thread; allocates.
void linear_reference(TensorView x, TensorView weight, TensorView bias, TensorView y);

}  // namespace minisgl::kernels
