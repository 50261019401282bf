// Root-mean-square normalisation. Implementations: kernels/ref/norm.cc, kernels/cpu/.

#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// y[t, :] = x[t, :] / sqrt(mean(x[t, :]^2) + eps) * weight
///
/// Shapes   x, y [num_tokens, hidden]   weight [hidden]; all f32
/// Layout   last dimension contiguous; rows may be strided. `y` may alias `x`.
/// Order    a row's result depends on that row alone.
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// Errors   Error if shapes, types or devices disagree. num_tokens == 0 is a no-op.
/// Source   Zhang & Sennrich 2019, eq. 4.
void rms_norm(TensorView x, TensorView weight, float eps, TensorView y, Stream& stream);

/// residual += x_scale * x, then x = rms_norm(residual), in one pass. `x` and `residual` must not
/// alias. Otherwise as rms_norm.
void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, float eps,
                        Stream& stream, float x_scale = 1);

}  // namespace minisgl::kernels
