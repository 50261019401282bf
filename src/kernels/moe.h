// Which experts a token goes to, and the sum of what they answer.
// Implementation: kernels/moe.cc. Layer: kernels (may include tensor/ and base/ only).

#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// The choices of T tokens of k experts each, and the same ordered by expert: pair (t, j) has row
/// rows[t, j] of that order.
///
///   tokens 0 and 1, k = 2, experts {1, 3} and {0, 1}:
///     experts  {1, 3}, {0, 1}      offsets  0 1 3 3 4
///     rows     {1, 3}, {0, 2}      tokens   1 0 1 0     (of the order's rows)
struct Routing {
  TensorView experts;  ///< [T, k] i32, ascending in each row
  TensorView weights;  ///< [T, k] f32, of these experts
  TensorView rows;     ///< [T, k] i32
  TensorView tokens;   ///< [T * k] i32; the tokens of an expert in ascending order
  TensorView
      offsets;  ///< [num_experts + 1] i32: expert e has the rows offsets[e] .. offsets[e + 1]
};

/// Softmax over all experts; the k best of each token, the lower index first among equals; weights
/// are their probabilities, divided by their sum if `normalize`. A token's result depends on its
/// logits alone.
///
/// Shapes   logits [T, num_experts] f32 (contiguous); Routing is written. k <= num_experts <= 1024
/// Logits that are NaN: some k experts are chosen, with weights that are NaN.
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// Source   transformers modeling_qwen3_moe.py Qwen3MoeTopKRouter.
void route_tokens(TensorView logits, bool normalize, const Routing& routing, Stream& stream);

/// y[t, :] = sum over j ascending of weights[t, j] * x[rows[t, j], :]
///
/// Shapes   x [T * k, width] f32   y [T, width] f32; must not alias
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
void combine_experts(TensorView x, const Routing& routing, TensorView y, Stream& stream);

}  // namespace minisgl::kernels
