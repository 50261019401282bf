#include "kernels/cpu/unpack.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace minisgl::kernels::cpu {
namespace {

using Bytes = const std::uint8_t*;

/// numbers[i] = i - zero
constexpr std::array<std::int8_t, 16> linear_numbers(int zero) {
  std::array<std::int8_t, 16> numbers{};
  for (int i = 0; i < 16; ++i) numbers[i] = static_cast<std::int8_t>(i - zero);
  return numbers;
}

// The non-linear code of IQ4_NL and IQ4_XS: kvalues_iq4nl of ggml-common.h.
constexpr std::array<std::int8_t, 16> kIq4Numbers = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

float f16_at(Bytes p) {
  Half half;
  std::memcpy(&half, p, sizeof(half));
  return to_f32(half);
}

std::uint32_t u32_at(Bytes p) {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

/// 16 bytes hold 32 nibbles: the low ones first, then the high ones.
void split_nibbles(Bytes q, std::int8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<std::int8_t>(q[i] & 15);
    codes[i + 16] = static_cast<std::int8_t>(q[i] >> 4);
  }
}

/// Q4_0, IQ4_NL (no minimum) and Q4_1: d, [m], 16 bytes.
void unpack_4bit(Bytes block, bool has_min, std::int8_t* codes, float* scale, float* min) {
  *scale = f16_at(block);
  if (has_min) *min = f16_at(block + 2);
  split_nibbles(block + (has_min ? 4 : 2), codes);
}

/// Q5_0 (numbers less 16) and Q5_1: d, [m], 32 fifth bits, 16 bytes.
void unpack_5bit(Bytes block, bool has_min, std::int8_t* codes, float* scale, float* min) {
  *scale = f16_at(block);
  if (has_min) *min = f16_at(block + 2);
  const Bytes rest = block + (has_min ? 4 : 2);
  const std::uint32_t fifth = u32_at(rest);
  split_nibbles(rest + 4, codes);
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<std::int8_t>((codes[i] | ((fifth >> i & 1U) << 4)) - (has_min ? 0 : 16));
}

void unpack_q8_0(Bytes block, std::int8_t* codes, float* scale) {
  *scale = f16_at(block);
  std::memcpy(codes, block + 2, 32);
}

/// scales[16] (low nibble scale, high nibble minimum), 64 bytes of 2-bit codes, d, dmin
void unpack_q2_k(Bytes block, std::int8_t* codes, float* scales, float* mins) {
  const Bytes q = block + 16;
  const float d = f16_at(block + 80);
  const float dmin = f16_at(block + 82);
  for (int g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(block[g] & 15);
    mins[g] = -(dmin * static_cast<float>(block[g] >> 4));
    const Bytes from = q + g / 8 * 32 + g % 2 * 16;
    for (int i = 0; i < 16; ++i)
      codes[g * 16 + i] = static_cast<std::int8_t>(from[i] >> (g % 8 / 2 * 2) & 3);
  }
}

/// hmask[32] (third bits), 64 bytes of 2-bit codes, 12 bytes of sixteen 6-bit scales, d
void unpack_q3_k(Bytes block, std::int8_t* codes, float* scales) {
  const Bytes q = block + 32;
  const Bytes packed = block + 96;
  const float d = f16_at(block + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
    const int high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    scales[g] = d * static_cast<float>((low | high << 4) - 32);
    const Bytes from = q + g / 8 * 32 + g % 2 * 16;
    const Bytes third = block + g % 2 * 16;
    for (int i = 0; i < 16; ++i)
      codes[g * 16 + i] = static_cast<std::int8_t>((from[i] >> (g % 8 / 2 * 2) & 3) |
                                                   (third[i] >> (g / 2) & 1) << 2);
  }
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K, in 12 bytes.
void unpack_k_scales(Bytes block, float* scales, float* mins) {
  const float d = f16_at(block);
  const float dmin = f16_at(block + 2);
  const Bytes s = block + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    const int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    scales[g] = d * static_cast<float>(scale);
    mins[g] = -(dmin * static_cast<float>(min));
  }
}

/// Four times 32 bytes: low nibbles are one group, high nibbles the next.
void unpack_k_nibbles(Bytes q, std::int8_t* codes) {
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i)
      codes[g * 32 + i] = static_cast<std::int8_t>(q[g / 2 * 32 + i] >> (g % 2 * 4) & 15);
  }
}

void unpack_q5_k(Bytes block, std::int8_t* codes, float* scales, float* mins) {
  unpack_k_scales(block, scales, mins);
  const Bytes fifth = block + 16;
  unpack_k_nibbles(block + 48, codes);
  for (int k = 0; k < 256; ++k)
    codes[k] = static_cast<std::int8_t>(codes[k] | (fifth[k % 32] >> (k / 32) & 1) << 4);
}

/// 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, d
void unpack_q6_k(Bytes block, std::int8_t* codes, float* scales) {
  const float d = f16_at(block + 208);
  for (int g = 0; g < 16; ++g)
    scales[g] = d * static_cast<float>(static_cast<std::int8_t>(block[192 + g]));
  for (int k = 0; k < 256; ++k) {
    const int half = k / 128;
    const int quarter = k % 128 / 32;
    const int i = k % 32;
    const int low = block[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
    const int high = block[128 + half * 32 + i] >> (quarter * 2) & 3;
    codes[k] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
}

/// d, 16 upper bit pairs of the scales, 8 lower nibbles of them, 128 bytes of nibbles
void unpack_iq4_xs(Bytes block, std::int8_t* codes, float* scales) {
  const float d = f16_at(block);
  const int high = block[2] | block[3] << 8;
  for (int g = 0; g < 8; ++g) {
    const int low = block[4 + g / 2] >> (g % 2 * 4) & 15;
    scales[g] = d * static_cast<float>((low | (high >> (2 * g) & 3) << 4) - 32);
    split_nibbles(block + 8 + g * 16, codes + g * 32);
  }
}

}  // namespace

BlockForm block_form(DType type) {
  switch (type) {
    case DType::kQ4_0: return {.code_bits = 4, .numbers = linear_numbers(8)};
    case DType::kQ4_1: return {.code_bits = 4, .has_min = true, .numbers = linear_numbers(0)};
    case DType::kIQ4_NL: return {.code_bits = 4, .numbers = kIq4Numbers};
    case DType::kQ5_0: return {};
    case DType::kQ5_1: return {.has_min = true};
    case DType::kQ8_0: return {};
    case DType::kQ2_K:
      return {
          .group = 16, .code_bits = 4, .has_min = true, .f16 = false, .numbers = linear_numbers(0)};
    case DType::kQ3_K:
      return {.group = 16, .code_bits = 4, .f16 = false, .numbers = linear_numbers(4)};
    case DType::kQ4_K:
      return {.code_bits = 4, .has_min = true, .f16 = false, .numbers = linear_numbers(0)};
    case DType::kQ5_K: return {.has_min = true, .f16 = false};
    case DType::kQ6_K: return {.group = 16, .f16 = false};
    case DType::kIQ4_XS: return {.code_bits = 4, .f16 = false, .numbers = kIq4Numbers};
    default: break;
  }
  throw Error("expected a block type, not " + std::string(name(type)));
}

void unpack_columns(DType type, const std::byte* blocks, std::int64_t cols, std::int8_t* codes,
                    float* scales, float* mins) {
  const int elems = info(type).block_elems;
  const int groups = elems / (elems == 32 ? 32 : block_form(type).group);
  auto block = reinterpret_cast<Bytes>(blocks);
  for (std::int64_t k = 0; k < cols; k += elems) {
    switch (type) {
      case DType::kQ4_0:
      case DType::kIQ4_NL: unpack_4bit(block, /*has_min=*/false, codes, scales, mins); break;
      case DType::kQ4_1: unpack_4bit(block, /*has_min=*/true, codes, scales, mins); break;
      case DType::kQ5_0: unpack_5bit(block, /*has_min=*/false, codes, scales, mins); break;
      case DType::kQ5_1: unpack_5bit(block, /*has_min=*/true, codes, scales, mins); break;
      case DType::kQ8_0: unpack_q8_0(block, codes, scales); break;
      case DType::kQ2_K: unpack_q2_k(block, codes, scales, mins); break;
      case DType::kQ3_K: unpack_q3_k(block, codes, scales); break;
      case DType::kQ4_K:
        unpack_k_scales(block, scales, mins);
        unpack_k_nibbles(block + 16, codes);
        break;
      case DType::kQ5_K: unpack_q5_k(block, codes, scales, mins); break;
      case DType::kQ6_K: unpack_q6_k(block, codes, scales); break;
      case DType::kIQ4_XS: unpack_iq4_xs(block, codes, scales); break;
      default: check(false, "expected a block type, not ", name(type));
    }
    block += info(type).block_bytes;
    codes += elems;
    scales += groups;
    mins += groups;
  }
}

}  // namespace minisgl::kernels::cpu
