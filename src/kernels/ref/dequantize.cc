#include "kernels/ref/dequantize.h"

#include <bit>
#include <cstring>

#include "tensor/half.h"

namespace minisgl::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are read as they lie in memory");

// In all formats a block is one or two f16 scales and integers `q` packed into bytes. A byte that
// holds two 4-bit numbers has the earlier element in its low half; the later one is half a group
// (16 or 32 elements) further on, not the next.

float f16_at(const std::uint8_t* p) {
  Half half;
  std::memcpy(&half, p, sizeof(half));
  return to_f32(half);
}

// blocks of 32.

/// value = d * (q - 8).  d f16 | q 4 bits x 32
void q4_0(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  const std::uint8_t* packed = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((packed[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((packed[i] >> 4) - 8);
  }
}

/// value = d * q + m.  d f16 | m f16 | q 4 bits x 32
void q4_1(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  const float m = f16_at(block + 2);
  const std::uint8_t* packed = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(packed[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(packed[i] >> 4) + m;
  }
}

/// The 32 numbers of 5 bits of Q5_0 and Q5_1: fifth bits (one 32-bit word, element i in bit i),
/// then low bits.
void unpack_5_bits(const std::uint8_t* p, int* q) {
  std::uint32_t high;
  std::memcpy(&high, p, sizeof(high));
  const std::uint8_t* packed = p + 4;
  for (int i = 0; i < 16; ++i) {
    q[i] = (packed[i] & 15) | static_cast<int>((high >> i & 1U) << 4);
    q[i + 16] = (packed[i] >> 4) | static_cast<int>((high >> (i + 16) & 1U) << 4);
  }
}

/// value = d * (q - 16).  d f16 | q 5 bits x 32
void q5_0(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  int q[32];
  unpack_5_bits(block + 2, q);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i] - 16);
}

/// value = d * q + m.  d f16 | m f16 | q 5 bits x 32
void q5_1(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  const float m = f16_at(block + 2);
  int q[32];
  unpack_5_bits(block + 4, q);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]) + m;
}

/// value = d * q.  d f16 | q int8 x 32
void q8_0(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

/// The 16 levels of IQ4_NL and IQ4_XS: finer near zero, where most weights are.
constexpr std::int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

/// value = d * level[q], for 32 elements in 16 bytes.
void non_linear_32(float d, const std::uint8_t* packed, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kNonLinear[packed[i] & 15]);
    out[i + 16] = d * static_cast<float>(kNonLinear[packed[i] >> 4]);
  }
}

/// value = d * level[q].  d f16 | q 4 bits x 32
void iq4_nl(const std::uint8_t* block, float* out) { non_linear_32(f16_at(block), block + 2, out); }

// super-blocks of 256: groups of 16 or 32 have small integer scales of their own.

/// value = d * scale * q - dmin * min, a group of 16 at a time.
/// (scale, min) 4 + 4 bits x 16 | q 2 bits x 256 | d f16 | dmin f16
void q2_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* scales = block;
  const std::uint8_t* packed = block + 16;
  const float d = f16_at(block + 80);
  const float dmin = f16_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    // 32 bytes hold 128 elements: bits 0-1 the first 32 of them, bits 2-3 the next, and so on.
    const int byte = i / 128 * 32 + i % 32;
    const int shift = i % 128 / 32 * 2;
    const std::uint8_t scale = scales[i / 16];
    const float scaled_d = d * static_cast<float>(scale & 15);
    const float scaled_min = dmin * static_cast<float>(scale >> 4);
    out[i] = scaled_d * static_cast<float>(packed[byte] >> shift & 3) - scaled_min;
  }
}

/// value = d * (scale - 32) * (q - 4), a group of 16 at a time; q has three bits.
/// third bits of q 1 bit x 256 | low bits of q 2 bits x 256 | scales 6 bits x 16 | d f16
void q3_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* third_bits = block;
  const std::uint8_t* packed = block + 32;
  const std::uint8_t* scales = block + 96;
  const float d = f16_at(block + 108);
  float scaled_d[16];
  for (int group = 0; group < 16; ++group) {
    // Low four bits: bytes 0-7, groups 8-15 in the high halves. High two bits: bytes 8-11, where
    // byte 8 + g % 4 has those of groups g, g + 4, g + 8, g + 12 in ascending bits.
    const int low = scales[group % 8] >> (group / 8 * 4) & 15;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    scaled_d[group] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int low = packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int third = third_bits[i % 32] >> (i / 32) & 1;
    out[i] = scaled_d[i / 16] * static_cast<float>((low | third << 2) - 4);
  }
}

/// The eight pairs of 6 bits of Q4_K and Q5_K in 12 bytes: bytes 0-3 and 4-7 are the scales and
/// minima of groups 0-3, whose upper two bits belong to groups 4-7; bytes 8-11 have the low four
/// bits of groups 4-7, the scale's in the low half.
struct ScaleAndMin {
  float scale;
  float min;
};
ScaleAndMin scale_and_min(const std::uint8_t* p, int group) {
  if (group < 4) return {static_cast<float>(p[group] & 63), static_cast<float>(p[group + 4] & 63)};
  const int scale = (p[group + 4] & 15) | (p[group - 4] >> 6 << 4);
  const int min = (p[group + 4] >> 4) | (p[group] >> 6 << 4);
  return {static_cast<float>(scale), static_cast<float>(min)};
}

/// value = d * scale * q - dmin * min, a group of 32 at a time.
/// d f16 | dmin f16 | (scale, min) 6 + 6 bits x 8 | q 4 bits x 256
void q4_k(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  const float dmin = f16_at(block + 2);
  const std::uint8_t* packed = block + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scale_and_min(block + 4, group);
    const float scaled_d = d * scale;
    const float scaled_min = dmin * min;
    // 32 bytes hold two groups, the first in the low halves.
    const std::uint8_t* bytes = packed + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int q = bytes[i] >> (group % 2 * 4) & 15;
      out[group * 32 + i] = scaled_d * static_cast<float>(q) - scaled_min;
    }
  }
}

/// As Q4_K with a fifth bit: bit g of byte i for element i of group g.
/// d f16 | dmin f16 | (scale, min) 6 + 6 bits x 8 | fifth bits 1 bit x 256 | low bits 4 bits x 256
void q5_k(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  const float dmin = f16_at(block + 2);
  const std::uint8_t* fifth_bits = block + 16;
  const std::uint8_t* packed = block + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scale_and_min(block + 4, group);
    const float scaled_d = d * scale;
    const float scaled_min = dmin * min;
    const std::uint8_t* bytes = packed + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int low = bytes[i] >> (group % 2 * 4) & 15;
      const int fifth = fifth_bits[i] >> group & 1;
      out[group * 32 + i] = scaled_d * static_cast<float>(low | fifth << 4) - scaled_min;
    }
  }
}

/// value = d * scale * (q - 32), a group of 16 at a time; q has six bits.
/// low bits 4 bits x 256 | high bits 2 bits x 256 | scale int8 x 16 | d f16
void q6_k(const std::uint8_t* block, float* out) {
  const std::uint8_t* low_bits = block;
  const std::uint8_t* high_bits = block + 128;
  const std::uint8_t* scales = block + 192;
  const float d = f16_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    // Each half of 128: 64 bytes with elements 0-63 in the low and 64-127 in the high halves; 32
    // bytes with the high bits of elements i, i + 32, i + 64, i + 96 in ascending bits.
    const int half = i / 128;
    const int j = i % 128;
    const int low = low_bits[half * 64 + j % 64] >> (j / 64 * 4) & 15;
    const int high = high_bits[half * 32 + j % 32] >> (j / 32 * 2) & 3;
    const float scaled_d = d * static_cast<float>(static_cast<std::int8_t>(scales[i / 16]));
    out[i] = scaled_d * static_cast<float>((low | high << 4) - 32);
  }
}

/// value = d * (scale - 32) * level[q], a group of 32 at a time.
/// d f16 | high bits of the scales 2 bits x 8 | low bits of them 4 bits x 8 | q 4 bits x 256
void iq4_xs(const std::uint8_t* block, float* out) {
  const float d = f16_at(block);
  std::uint16_t high_bits;
  std::memcpy(&high_bits, block + 2, sizeof(high_bits));
  for (int group = 0; group < 8; ++group) {
    const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const int high = high_bits >> (group * 2) & 3;
    const float scaled_d = d * static_cast<float>((low | high << 4) - 32);
    non_linear_32(scaled_d, block + 8 + group * 16, out + group * 32);
  }
}

template <class T>
void plain(const std::byte* src, std::int64_t cols, float* dst) {
  for (std::int64_t i = 0; i < cols; ++i) {
    T value;
    std::memcpy(&value, src + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    dst[i] = to_f32(value);
  }
}

using BlockFunction = void (*)(const std::uint8_t* block, float* out);

BlockFunction function_of(DType type) {
  switch (type) {
    case DType::kQ4_0: return q4_0;
    case DType::kQ4_1: return q4_1;
    case DType::kQ5_0: return q5_0;
    case DType::kQ5_1: return q5_1;
    case DType::kQ8_0: return q8_0;
    case DType::kQ2_K: return q2_k;
    case DType::kQ3_K: return q3_k;
    case DType::kQ4_K: return q4_k;
    case DType::kQ5_K: return q5_k;
    case DType::kQ6_K: return q6_k;
    case DType::kIQ4_NL: return iq4_nl;
    case DType::kIQ4_XS: return iq4_xs;
    default: return nullptr;
  }
}

}  // namespace

void dequantize_row(DType type, const std::byte* src, std::int64_t cols, float* dst) {
  if (type == DType::kF32) return plain<float>(src, cols, dst);
  if (type == DType::kF16) return plain<Half>(src, cols, dst);
  if (type == DType::kBF16) return plain<BFloat16>(src, cols, dst);
  const BlockFunction dequantize_block = function_of(type);
  check(dequantize_block != nullptr, "cannot dequantise ", name(type), ": not a type of weights");
  const DTypeInfo storage = info(type);
  check(cols % storage.block_elems == 0, "a row of ", cols, " elements is not whole blocks of ",
        storage.block_elems, " (", storage.name, ")");
  const auto* block = reinterpret_cast<const std::uint8_t*>(src);
  for (std::int64_t done = 0; done < cols; done += storage.block_elems) {
    dequantize_block(block, dst + done);
    block += storage.block_bytes;
  }
}

}  // namespace minisgl::kernels
