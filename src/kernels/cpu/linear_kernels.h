// The inner loops of linear(), one set for each instruction set. They get raw pointers and run on
// one thread; checks, partition and threads are in kernels/linear.cc.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/pack.h"
#include "kernels/simd.h"

namespace minisgl::kernels::cpu {

/// The largest LinearKernels::few_tokens.
constexpr std::int64_t kMaxFewTokens = 32;
/// Sums of x, which few tokens need before the parts start, are kept on the stack up to this many
/// columns; wider matrices are multiplied as with many tokens.
constexpr std::int64_t kMaxFewCols = 32768;
/// One part with more tokens: what its scratch on the stack is made for.
constexpr std::int64_t kMaxPartTokens = 128;
constexpr std::int64_t kMaxPartTiles = 4;

/// y[t, n] = sum_k x[t, k] * w[n, k] (+ bias[n]) for some rows n of one matrix and some tokens t.
/// Strides in elements.
struct LinearPart {
  const TileLayout* layout = nullptr;
  const std::byte* weights = nullptr;  ///< the first row's tile (kRows: the first row)
  std::int64_t tile_bytes = 0;         ///< not for kRows
  std::int64_t num_rows = 0;           ///< what a tile has beyond them is padding: not written
  std::int64_t cols = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t num_tokens = 0;
  bool few = false;             ///< else at most kMaxPartTokens and kMaxPartTiles
  const float* sums = nullptr;  ///< few: [num_tokens, cols / group] by sum_groups(), if has_min
  float* y = nullptr;           ///< of the first row
  std::int64_t y_stride = 0;
  const float* bias = nullptr;  ///< of the first row; may be null
};

struct LinearKernels {
  Simd simd;
  /// Up to so many tokens decoding weights in registers, again for every block of tokens, is faster
  /// than decoding them into the cache (measured; the results are the same).
  std::int64_t few_tokens;
  void (*multiply_tiles)(const LinearPart&);
  /// sums[g] = the sum of the group x[g * group ...], for cols / group groups of 16 or 32
  void (*sum_groups)(const float* x, std::int64_t cols, int group, float* sums);
};

/// The kernels of the instruction set in use; throws Error if it has none for tiles (plain).
const LinearKernels& linear_kernels();

/// The same product of rows as they lie in the file (Packing::kRows), for any machine.
void multiply_rows(const LinearPart& part);

}  // namespace minisgl::kernels::cpu
