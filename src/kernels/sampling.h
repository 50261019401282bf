// Drawing tokens from logits. Implementations: kernels/ref/sampling.cc, kernels/cpu/.

#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// Lower temperatures mean argmax: what they leave of the second most likely token is rounding.
constexpr float kGreedyTemperature = 1e-5F;

/// How one row is drawn. Plain data: lies in a device buffer.
struct SamplingRow {
  float temperature = 0;   ///< < kGreedyTemperature: argmax, lowest id of equals
  std::int32_t top_k = 0;  ///< <= 0 or >= vocab: off; 1: argmax
  float top_p = 1;         ///< >= 1: off; <= 0: the most likely token
  float min_p = 0;         ///< <= 0: off
  std::uint64_t seed = 0;
  std::uint64_t position = 0;
};

/// tokens[s] = a draw from softmax(logits[s] / temperature) after min-p, top-k and top-p, in this
/// order, each renormalising what it leaves. Top-k keeps all that tie with the last; among equals
/// top-p takes lower ids first. The uniform number is Philox4x32-10(key = seed, counter =
/// position), so equal (seed, position, logits) give the same token everywhere, whatever the
/// instruction set, the number of threads and the other rows.
///
/// Logits that are no distribution do not fail: a row with a NaN or a +inf gives the argmax of what
/// is not NaN, and 0 if all is NaN or -inf.
///
/// Shapes   logits [S, vocab] f32 (not changed; -inf allowed), rows S x SamplingRow, tokens [S] i32
/// Timing   enqueued on `stream`; `workspace` of sampling_workspace_bytes(); does not allocate.
void sample(TensorView logits, const SamplingRow* rows, TensorView tokens, TensorView workspace,
            Stream& stream);
/// For as many rows at once as there are threads, but at most 16; with less workspace, down to what
/// one row needs, fewer rows are drawn at once. On a GPU all rows are drawn at once.
std::int64_t sampling_workspace_bytes(std::int64_t num_rows, std::int64_t vocab_size,
                                      Device device = kCpu);

/// The uniform number in [0, 1) with 32 bits that a draw uses (Salmon et al. 2011, "Parallel random
/// numbers: as easy as 1, 2, 3": ten rounds of Philox4x32).
double philox_uniform(std::uint64_t seed, std::uint64_t position);

}  // namespace minisgl::kernels
