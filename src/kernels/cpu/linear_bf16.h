// Products of bf16 activations with bf16 weights by the instruction made for them. Each output is
// summed over k in one order, whatever the number of tokens: over chunks of 128 k ascending,
//   acc = 0; acc += w(n, k) x(t, k) + w(n, k + 1) x(t, k + 1) over the chunk's pairs, ascending
//   total = total + acc, and the bias at the end.
// How a machine rounds inside of a pair is its own business, but always the same.

#pragma once

#include <cstddef>
#include <cstdint>

namespace minisgl::kernels::cpu {

/// Some rows (whole tiles, pack.h: kFloat of bf16) times some tokens, at most kMaxPartTokens.
/// Strides in elements.
struct Bf16Part {
  const std::byte* weights = nullptr;
  std::int64_t tile_bytes = 0;
  std::int64_t num_rows = 0;  ///< what the last tile has beyond them is not written
  std::int64_t cols = 0;
  const std::uint16_t* x = nullptr;  ///< bf16; rows of `cols`, and a zero if that is odd
  std::int64_t x_stride = 0;         ///< even
  std::int64_t num_tokens = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  const float* bias = nullptr;  ///< may be null
};

struct Bf16Kernels {
  void (*multiply)(const Bf16Part&);
  /// dst [round_up(count, 2)] = src [count] rounded to nearest even, subnormals to zero.
  void (*round_row)(const float* src, std::int64_t count, std::uint16_t* dst);
};

/// Null when this machine, this build or the instruction set in use has no such instruction.
const Bf16Kernels* bf16_kernels();

}  // namespace minisgl::kernels::cpu
