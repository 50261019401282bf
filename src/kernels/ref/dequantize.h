// Stored weights back to f32, in plain C++: the meaning of every block format in one place.
// Oracle: kernels/ref/dequantize_test.cc (the `gguf` Python package).

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace minisgl::kernels {

/// dst[i] = the value of element i of a row, exactly as the format defines it: each product and
/// sum is rounded to f32 once, in the order of ggml's own conversion.
///
/// Shapes   src holds bytes_of(type, cols) bytes, dst `cols` floats; cols is whole blocks.
/// Types    f32, f16, bf16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
///          IQ4_XS.
/// Layout   src needs no alignment; it must not overlap dst.
/// Timing   runs at once on the calling thread; does not allocate.
/// Errors   Error naming a type that holds no weights, or a row that is not whole blocks.
/// Source   ggml-common.h (layouts), ggml-quants.c (formulas), ggml-org/ggml.
void dequantize_row(DType type, const std::byte* src, std::int64_t cols, float* dst);

}  // namespace minisgl::kernels
