// Tensors of one floating-point type as another, number by number.

#pragma once

#include <cstdint>

#include "tensor/half.h"
#include "tensor/tensor.h"

namespace minisgl::testing_util {

/// Element i of a contiguous tensor of f32, f16, bf16 or fp8_e4m3.
inline float number_at(TensorView tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case DType::kBF16: return to_f32(tensor.as<BFloat16>()[i]);
    case DType::kF16: return to_f32(tensor.as<Half>()[i]);
    case DType::kF8E4M3: return to_f32(tensor.as<Float8E4M3>()[i]);
    default: return tensor.as<float>()[i];
  }
}

inline void set_number(TensorView tensor, std::int64_t i, float value) {
  switch (tensor.dtype) {
    case DType::kBF16: tensor.as<BFloat16>()[i] = to_bf16(value); break;
    case DType::kF16: tensor.as<Half>()[i] = to_f16(value); break;
    case DType::kF8E4M3: tensor.as<Float8E4M3>()[i] = to_fp8_e4m3(value); break;
    default: tensor.as<float>()[i] = value;
  }
}

/// In host memory, contiguous.
inline Tensor converted(TensorView tensor, DType dtype) {
  Tensor result(tensor.shape, dtype);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) set_number(result, i, number_at(tensor, i));
  return result;
}

}  // namespace minisgl::testing_util
