// Gated activations. Implementations: kernels/ref/activation.cc, kernels/cpu/.

#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// y[t, i] = silu(gate_up[t, i]) * gate_up[t, width + i], silu(z) = z / (1 + exp(-z))
///
/// Shapes   gate_up [num_tokens, 2 * width]   y [num_tokens, width]; f32
/// Error    exp within 2 units in the last place; every element is computed alike, whatever its
///          place in a vector.
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
void silu_and_mul(TensorView gate_up, TensorView y, Stream& stream);

/// The same with gelu in place of silu: gelu(z) = z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715
/// z^3))).
///
/// Error    tanh within 3 units in the last place; where it is close to -1 the result keeps an
///          absolute error of 2e-7 |z|.
/// Source   Hendrycks & Gimpel 2016, the approximation of section 2; torch
/// gelu(approximate="tanh").
void gelu_tanh_and_mul(TensorView gate_up, TensorView y, Stream& stream);

}  // namespace minisgl::kernels
