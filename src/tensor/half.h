// f16 and bf16 to f32 and back, one number at a time, without any instruction-set extension.

#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace minisgl {

inline float to_f32(float value) { return value; }

inline float to_f32(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline float to_f32(Half value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7FFFU;
  if (magnitude >= 0x7C00U)  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13));
  if (magnitude < 0x0400U) {  // subnormal: magnitude * 2^-24, exact in f32
    const float scaled = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
}

/// Rounds to nearest even.
inline BFloat16 to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U)  // NaN stays NaN, quiet
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

/// Rounds to nearest even; overflow gives infinity.
inline Half to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};
  if (magnitude <
      0x38800000U) {  // below 2^-14: adding 0.5 leaves the rounded subnormal in the low bits
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3F000000U))};
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13))};
}

}  // namespace minisgl
