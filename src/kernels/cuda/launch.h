// Starting kernels. For files below folders named cuda/.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/check.h"
#include "base/math.h"
#include "tensor/cuda/error.h"
#include "tensor/cuda/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels::gpu {

using minisgl::cuda::as_cuda;
using minisgl::cuda::check_launch;

/// Throws Error unless `tensor` is contiguous in its last dimension and its rows can be read 16
/// bytes at a time: a width that is a multiple of 8, rows aligned to 16 bytes. (Without memory: a
/// dry run.)
inline void check_vectors(const TensorView& tensor, const char* what) {
  const std::int64_t row_bytes = tensor.rank() > 1 ? bytes_of(tensor.dtype, tensor.stride(0)) : 0;
  check(tensor.stride(-1) == 1 && tensor.dim(-1) % 8 == 0 && row_bytes % 16 == 0 &&
            reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0,
        what, " has shape ", to_string(tensor.shape), " and rows ", row_bytes,
        " bytes apart; a GPU needs rows of a multiple of 8 elements, aligned to 16 bytes");
}

inline void check_float(const TensorView& tensor, const char* what) {
  check(tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16,
        what, " is ", name(tensor.dtype), "; a GPU takes bf16, f16 or f32");
}

/// Throws Error unless `tensor` is of bf16 or f16, what products on tensor cores take.
inline void check_half(const TensorView& tensor, const char* what) {
  check(tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16, what, " is ",
        name(tensor.dtype), "; a GPU takes bf16 or f16");
}

/// Throws Error unless activations are f32 or bf16 and keys and values f32, bf16 or fp8 (e4m3), or
/// both are f16, or they are f16 and fp8.
inline void check_attention_types(DType type, DType kv) {
  check(type == DType::kF32 || type == DType::kBF16 || type == DType::kF16, "activations are ",
        name(type), "; a GPU takes f32, bf16 or f16");
  const bool fits =
      type == DType::kF16 ? kv == DType::kF16 : kv == DType::kF32 || kv == DType::kBF16;
  check(fits || kv == DType::kF8E4M3, "keys and values of ", name(kv),
        " do not go with activations of ", name(type), " on a GPU");
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(ceil_div(items, per_block));
}

}  // namespace minisgl::kernels::gpu
