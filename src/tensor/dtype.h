// Element types. A block type (ggml's quantised formats) packs block_elems values into block_bytes.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace minisgl {

// clang-format off
enum class DType : std::uint8_t {
  kF32, kF16, kBF16, kI8, kI16, kI32, kI64, kU8, kBool,
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0,
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,
  kIQ4_NL, kIQ4_XS,
  kF8E4M3,
};
// clang-format on

struct DTypeInfo {
  std::string_view name;
  int block_elems;  ///< 1 for plain types
  int block_bytes;
};

/// Name and storage of a type. Source of the block sizes: ggml-common.h.
constexpr DTypeInfo info(DType type) {
  switch (type) {
    case DType::kF32: return {"f32", 1, 4};
    case DType::kF16: return {"f16", 1, 2};
    case DType::kBF16: return {"bf16", 1, 2};
    case DType::kI8: return {"i8", 1, 1};
    case DType::kI16: return {"i16", 1, 2};
    case DType::kI32: return {"i32", 1, 4};
    case DType::kI64: return {"i64", 1, 8};
    case DType::kU8: return {"u8", 1, 1};
    case DType::kBool: return {"bool", 1, 1};
    case DType::kQ4_0: return {"Q4_0", 32, 18};
    case DType::kQ4_1: return {"Q4_1", 32, 20};
    case DType::kQ5_0: return {"Q5_0", 32, 22};
    case DType::kQ5_1: return {"Q5_1", 32, 24};
    case DType::kQ8_0: return {"Q8_0", 32, 34};
    case DType::kQ2_K: return {"Q2_K", 256, 84};
    case DType::kQ3_K: return {"Q3_K", 256, 110};
    case DType::kQ4_K: return {"Q4_K", 256, 144};
    case DType::kQ5_K: return {"Q5_K", 256, 176};
    case DType::kQ6_K: return {"Q6_K", 256, 210};
    case DType::kIQ4_NL: return {"IQ4_NL", 32, 18};
    case DType::kIQ4_XS: return {"IQ4_XS", 256, 136};
    case DType::kF8E4M3: return {"fp8_e4m3", 1, 1};
  }
  return {"?", 1, 1};
}

constexpr std::string_view name(DType type) { return info(type).name; }
constexpr bool is_block_type(DType type) { return info(type).block_elems > 1; }

/// Bytes of `count` consecutive elements; `count` must be whole blocks.
constexpr std::int64_t bytes_of(DType type, std::int64_t count) {
  return count / info(type).block_elems * info(type).block_bytes;
}

// clang-format off
/// IEEE 754 half and bfloat16 bit patterns, and those of 8 bits with 4 for the exponent; conversion
/// in tensor/half.h.
struct Half { std::uint16_t bits; };
struct BFloat16 { std::uint16_t bits; };
struct Float8E4M3 { std::uint8_t bits; };

template <class T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<Half> { static constexpr DType value = DType::kF16; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::kBF16; };
template <> struct DTypeOf<Float8E4M3> { static constexpr DType value = DType::kF8E4M3; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType value = DType::kI8; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::kU8; };
// clang-format on

/// Calls f.operator()<T>() with the C++ type of a floating-point `type`.
template <class F>
decltype(auto) visit_float_dtype(DType type, F&& f) {
  switch (type) {
    case DType::kF32: return f.template operator()<float>();
    case DType::kF16: return f.template operator()<Half>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    default: check(false, "expected f32, f16 or bf16, not ", name(type));
  }
  __builtin_unreachable();
}

}  // namespace minisgl
