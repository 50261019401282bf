#include "kernels/cpu/pack_float.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#include <xmmintrin.h>
#endif

#include "kernels/cpu/pack.h"
#include "kernels/ref/dequantize.h"
#include "tensor/half.h"

namespace minisgl::kernels::cpu {
namespace {

constexpr std::int64_t kLine = 64;  // bytes

/// Columns [begin, end), one number at a time.
template <std::size_t kBytes>
void pack_slowly(const std::byte* const* rows, std::int64_t begin, std::int64_t end,
                 std::byte* out) {
  out += begin * kTileRows * static_cast<std::int64_t>(kBytes);
  for (std::int64_t k = begin; k < end; ++k) {
    for (int r = 0; r < kTileRows; ++r, out += kBytes) {
      if (rows[r] != nullptr) std::memcpy(out, rows[r] + k * kBytes, kBytes);
    }
  }
}

#if defined(__SSE2__)

/// One cache line of each row. The lines of rows that are a power of two apart share a set of the
/// first-level cache, which has fewer ways than there are rows: read whole, once, they need none.
struct alignas(kLine) Lines {
  std::byte bytes[kTileRows][kLine];
};

void read_lines(const std::byte* const* rows, std::int64_t offset, Lines& lines) {
  constexpr std::int64_t kAhead = 4 * kLine;
  for (int r = 0; r < kTileRows; ++r) {
    const std::byte* from = rows[r] + offset;
    _mm_prefetch(reinterpret_cast<const char*>(from + kAhead), _MM_HINT_T1);
    std::memcpy(lines.bytes[r], from, kLine);
  }
}

/// v[i][j] -> v[j][i], 16-bit numbers.
void transpose(__m128i (&v)[8]) {
  __m128i a[8];
  __m128i b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm_unpacklo_epi32(a[i], a[i + 2]);
    b[i + 1] = _mm_unpackhi_epi32(a[i], a[i + 2]);
    b[i + 2] = _mm_unpacklo_epi32(a[i + 1], a[i + 3]);
    b[i + 3] = _mm_unpackhi_epi32(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm_unpacklo_epi64(b[i], b[i + 4]);
    v[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[i + 4]);
  }
}

/// v[i][j] -> v[j][i], 32-bit numbers.
void transpose(__m128i (&v)[4]) {
  const __m128i a = _mm_unpacklo_epi32(v[0], v[1]);
  const __m128i b = _mm_unpackhi_epi32(v[0], v[1]);
  const __m128i c = _mm_unpacklo_epi32(v[2], v[3]);
  const __m128i d = _mm_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm_unpacklo_epi64(a, c);
  v[1] = _mm_unpackhi_epi64(a, c);
  v[2] = _mm_unpacklo_epi64(b, d);
  v[3] = _mm_unpackhi_epi64(b, d);
}

/// The columns of the lines, in order. kCount numbers fill 16 bytes.
template <int kCount>
void write_columns(const Lines& lines, std::byte* out) {
  constexpr int kPieces = kTileRows / kCount;  // of 16 bytes in a column
  for (std::int64_t at = 0; at < kLine; at += 16) {
    __m128i columns[kCount][kPieces];
    for (int piece = 0; piece < kPieces; ++piece) {
      __m128i v[kCount];
      for (int i = 0; i < kCount; ++i)
        v[i] =
            _mm_load_si128(reinterpret_cast<const __m128i*>(lines.bytes[piece * kCount + i] + at));
      transpose(v);
      for (int i = 0; i < kCount; ++i) columns[i][piece] = v[i];
    }
    for (int i = 0; i < kCount; ++i) {
      for (int piece = 0; piece < kPieces; ++piece, out += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(out), columns[i][piece]);
    }
  }
}

/// As many columns as whole lines have; returns their number.
template <std::size_t kBytes>
std::int64_t pack_lines(const std::byte* const* rows, std::int64_t cols, std::byte* out) {
  constexpr std::int64_t kStep = kLine / static_cast<std::int64_t>(kBytes);
  if (std::find(rows, rows + kTileRows, nullptr) != rows + kTileRows) return 0;
  Lines lines;
  std::int64_t k = 0;
  for (; k + kStep <= cols; k += kStep) {
    read_lines(rows, k * static_cast<std::int64_t>(kBytes), lines);
    write_columns<16 / kBytes>(lines, out + k * kTileRows * static_cast<std::int64_t>(kBytes));
  }
  _mm_sfence();
  return k;
}

#else

template <std::size_t kBytes>
std::int64_t pack_lines(const std::byte* const*, std::int64_t, std::byte*) {
  return 0;
}

#endif

}  // namespace

void pack_float_tile(const std::byte* const* rows, std::int64_t cols, int element_bytes,
                     std::byte* out) {
  if (element_bytes == 4) {
    pack_slowly<4>(rows, pack_lines<4>(rows, cols, out), cols, out);
  } else {
    pack_slowly<2>(rows, pack_lines<2>(rows, cols, out), cols, out);
  }
}

bool convert_row(DType from, const std::byte* src, std::int64_t count, DType to, std::byte* dst) {
  constexpr std::int64_t kChunk = 256;
  float wide[kChunk];
  bool fits = true;
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t width = std::min(count - begin, kChunk);
    dequantize_row(from, src + bytes_of(from, begin), width, wide);
    for (std::int64_t i = 0; i < width; ++i) {
      std::byte* at = dst + bytes_of(to, begin + i);
      if (to == DType::kF32) {
        std::memcpy(at, &wide[i], sizeof(float));
        continue;
      }
      const std::uint16_t bits = to == DType::kF16 ? to_f16(wide[i]).bits : to_bf16(wide[i]).bits;
      std::memcpy(at, &bits, sizeof(bits));
      const float stored = to == DType::kF16 ? to_f32(Half{bits}) : to_f32(BFloat16{bits});
      fits &= std::isfinite(stored) || !std::isfinite(wide[i]);
    }
  }
  return fits;
}

}  // namespace minisgl::kernels::cpu
