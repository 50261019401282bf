// f16, bf16 and fp8 (e4m3) to f32 and back, one number at a time, without any instruction-set
// extension.
// extension.

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

/// e4m3: numbers up to 448, no infinities, NaN where all seven bits are set.
/// Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022.
inline float to_f32(Float8E4M3 value) {
  const float sign = (value.bits & 0x80U) != 0 ? -1.0F : 1.0F;
  const std::uint32_t magnitude = value.bits & 0x7FU;
  if (magnitude == 0x7FU) return std::bit_cast<float>(0x7FC00000U);
  if (magnitude < 8) return sign * static_cast<float>(magnitude) * 0x1p-9F;  // subnormal
  return sign * std::bit_cast<float>((magnitude << 20) + (120U << 23));
}

/// Rounds to nearest even; what is beyond 448 becomes 448, infinities included.
inline Float8E4M3 to_fp8_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const auto with_sign = [sign](std::uint32_t code) {
    return Float8E4M3{static_cast<std::uint8_t>(sign | code)};
  };
  if (magnitude > 0x7F800000U) return with_sign(0x7FU);
  if (magnitude >= 0x43E00000U) return with_sign(0x7EU);  // 448 and more
  if (magnitude <
      0x3C800000U) {  // below 2^-6: adding 2^14 leaves multiples of 2^-9 in the low bits
    const float sum = std::bit_cast<float>(magnitude) + 0x1p14F;
    return with_sign(std::bit_cast<std::uint32_t>(sum) - 0x46800000U);
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U);
  return with_sign(((rounded - (120U << 23)) >> 20) & 0x7FU);
}

}  // namespace minisgl
