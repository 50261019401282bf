// The ops of this layer written as plainly as possible, in double where it matters: the oracle that
// the optimised kernels are compared with, and what the attention backend `ref` runs. They run at
// once on the calling thread, and expect arguments that the op of the same name accepts.

#pragma once

#include <vector>

#include "kernels/attention.h"
#include "kernels/logits.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "tensor/tensor.h"

namespace minisgl::kernels::ref {

/// See kernels/norm.h.
void rms_norm(TensorView x, TensorView weight, float eps, TensorView y);
void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, float eps,
                        float x_scale = 1);

/// See kernels/activation.h.
void silu_and_mul(TensorView gate_up, TensorView y);
void gelu_tanh_and_mul(TensorView gate_up, TensorView y);

/// See kernels/rope.h.
void qk_norm_rope_store(const RopeStoreArgs& args);

/// See kernels/attention.h. One softmax over all keys that a query sees, in double: the oracle.
void paged_attention(const PagedAttentionArgs& args);

/// The same in f32, in the order of kernels/attention_tiles.h: what the optimised kernels must give
/// bit for bit. One query head after the other, one number after the other. `workspace`,
/// [2, head_dim] f32, is all the memory that it takes.
void paged_attention_in_order(const PagedAttentionArgs& args, TensorView workspace);

/// See kernels/sampling.h: the probability of each token of a row.
std::vector<double> filtered_probabilities(TensorView logits, const SamplingRow& row);

/// See kernels/logits.h; in f32, since each operation is rounded.
void edit_logits(TensorView logits, const LogitEdits& edits);

/// Natural logarithms of softmax(logits), [vocab] finite or -inf, in double.
std::vector<double> log_softmax(TensorView logits);

}  // namespace minisgl::kernels::ref
