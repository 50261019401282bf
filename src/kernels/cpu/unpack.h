// The quantised formats taken apart: integer codes, and a scale (and minimum) for each group.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace minisgl::kernels::cpu {

/// How a block type makes its numbers. All of them have this form:
///   value(k) = scale(group of k) * number(code k) + min(group of k)
struct BlockForm {
  int group = 32;        ///< consecutive k that share a scale, 16 or 32
  int code_bits = 8;     ///< 4: number = numbers[code]; 8: the code is the number (signed)
  bool has_min = false;  ///< else min = 0 and is not added
  bool f16 = true;       ///< scale and min are f16 in the file, hence exact as f16
  std::array<std::int8_t, 16> numbers{};
};

/// Throws Error unless `type` is a block type.
BlockForm block_form(DType type);

/// Columns [0, cols) of a row; `cols` is whole blocks and at most kUnpackCols.
///   codes [cols], scales and mins [cols / group]; mins stays untouched without has_min.
/// scale * number + min, each operation rounded to f32, is bit for bit the value of the format's
/// reference decoder. Layouts and formulas: ggml-common.h, ggml-quants.c (dequantize_row_*).
void unpack_columns(DType type, const std::byte* blocks, std::int64_t cols, std::int8_t* codes,
                    float* scales, float* mins);

constexpr std::int64_t kUnpackCols = 256;  // the largest block

}  // namespace minisgl::kernels::cpu
