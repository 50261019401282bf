// Operations on each number of a matrix in place. Oracle: kernels/elementwise_test.cc.

#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// x *= factor.
///
/// Shapes   x [num_tokens, width] f32; last dimension contiguous, rows may be strided
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// Errors   Error if shapes or types disagree. No tokens are a no-op.
void scale(TensorView x, float factor, Stream& stream);

/// residual += x_scale * x, then x = residual: fused_add_rms_norm() without the norm. `x` and
/// `residual` must not alias. Otherwise as scale().
void add_and_copy(TensorView x, TensorView residual, float x_scale, Stream& stream);

/// x = cap * tanh(x / cap), cap > 0. Otherwise as scale().
void softcap(TensorView x, float cap, Stream& stream);

}  // namespace minisgl::kernels
