// The inner loops of linear(), one set for each instruction set. They get raw pointers and run on
// one thread; checks, partition and threads are in kernels/linear.cc.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/pack.h"
#include "kernels/simd.h"

namespace minisgl::kernels::cpu {

/// Tokens that the kernel for few tokens takes, which reads each weight once from memory and
/// decodes it in registers. With more of them weights are decoded into the cache first.
constexpr std::int64_t kFewTokens = 8;
/// Tokens of one part of a product at most: what its scratch on the stack is made for.
constexpr std::int64_t kMaxPartTokens = 128;
/// Sums of 16 consecutive x, which the kernel for few tokens needs, are kept on the stack up to
/// this many columns.
constexpr std::int64_t kMaxFewCols = 32768;
constexpr std::int64_t kSumCols = 16;

/// y[t, n] = sum_k x[t, k] * w[n, k] (+ bias[n]) for some rows n of one matrix and some tokens t.
/// Strides in elements.
struct LinearPart {
  const TileLayout* layout = nullptr;
  const std::byte* weights = nullptr;  ///< the first row's tile (kRows: the first row)
  std::int64_t num_rows = 0;           ///< tiles beyond are padding, which is not written
  std::int64_t cols = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t num_tokens = 0;    ///< at most kMaxPartTokens
  const float* sums = nullptr;    ///< [num_tokens, cols / 16] by sum_columns(); null with more than
                                  ///< kFewTokens tokens or kMaxFewCols columns
  float* y = nullptr;             ///< of the first row
  std::int64_t y_stride = 0;
  const float* bias = nullptr;    ///< of the first row; may be null
};

struct LinearKernels {
  Simd simd;
  void (*multiply_tiles)(const LinearPart&);
  /// sums[k / 16] = x[k] + ... + x[k + 15] for cols / 16 groups
  void (*sum_columns)(const float* x, std::int64_t cols, float* sums);
};

/// The kernels of the instruction set in use; throws Error if it has none for tiles (plain).
const LinearKernels& linear_kernels();

/// The same product of rows as they lie in the file (Packing::kRows), for any machine.
void multiply_rows(const LinearPart& part);

}  // namespace minisgl::kernels::cpu
