// Moving rows by index.

#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// y[i, :] = x[rows[i], :]
///
/// Shapes   x [N, width] f32   rows [S] i32, each in [0, N)   y [S, width] f32; must not alias
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
void gather_rows(TensorView x, TensorView rows, TensorView y, Stream& stream);

/// out[i] = values[index[i]]; all i32; every index inside `values`.
void gather(TensorView values, TensorView index, TensorView out, Stream& stream);

/// values[index[i]] = in[i]; all i32; indices distinct.
void scatter(TensorView in, TensorView index, TensorView values, Stream& stream);

}  // namespace minisgl::kernels
