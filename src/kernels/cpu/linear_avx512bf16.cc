// GCC 12 takes the deliberately undefined pass-through operands of its own intrinsics for a mistake
// (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "kernels/cpu/linear_bf16.h"
#include "kernels/cpu/linear_kernels.h"

namespace minisgl::kernels::cpu {
namespace {

constexpr std::int64_t kChunk = 128;   // k; the weights of a tile: 8 KB, a quarter of the L1 cache
constexpr int kBlock = 8;              // tokens: 16 registers of sums
constexpr std::int64_t kAhead = 2048;  // bytes of prefetch

/// Sums of a tile: 16-bit unpacking puts rows 0-3, 8-11, 16-19, 24-27 into the first vector and the
/// others into the second.
struct alignas(64) Totals {
  float of[kMaxPartTokens][2][16];
};

/// A chunk of up to kChunk k from column k on.
template <int kTokens>
void add_chunk(const std::byte* weights, const std::uint16_t* x, std::int64_t x_stride,
               std::int64_t width, float (*totals)[2][16]) {
  __m512 acc[kTokens][2];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < width; k += 2, weights += 128) {
    if (kTokens == kBlock || k % 4 == 0) __builtin_prefetch(weights + kAhead, 0, 2);
    const __m512i first = _mm512_loadu_si512(weights);
    const __m512i second =
        k + 1 < width ? _mm512_loadu_si512(weights + 64) : _mm512_setzero_si512();
    const auto low = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(first, second));
    const auto high = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(first, second));
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      int bits;
      __builtin_memcpy(&bits, x + t * x_stride + k, sizeof(bits));
      const auto pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
      acc[t][0] = _mm512_dpbf16_ps(acc[t][0], low, pair);
      acc[t][1] = _mm512_dpbf16_ps(acc[t][1], high, pair);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < 2; ++v)
      _mm512_store_ps(totals[t][v], _mm512_add_ps(_mm512_load_ps(totals[t][v]), acc[t][v]));
  }
}

template <int kTokens = kBlock>
void add_tokens(std::int64_t tokens, const std::byte* weights, const std::uint16_t* x,
                std::int64_t x_stride, std::int64_t width, float (*totals)[2][16]) {
  if constexpr (kTokens > 1) {
    if (tokens < kTokens)
      return add_tokens<kTokens - 1>(tokens, weights, x, x_stride, width, totals);
  }
  add_chunk<kTokens>(weights, x, x_stride, width, totals);
}

void store(const float (*totals)[16], const Bf16Part& part, std::int64_t row, std::int64_t token) {
  const __m512i first_rows =
      _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
  const __m512i last_rows =
      _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8);
  const __m512 a = _mm512_load_ps(totals[0]);
  const __m512 b = _mm512_load_ps(totals[1]);
  const __m512 rows[2] = {_mm512_permutex2var_ps(a, first_rows, b),
                          _mm512_permutex2var_ps(a, last_rows, b)};
  for (int v = 0; v < 2; ++v) {
    const std::int64_t at = row + v * 16;
    const std::int64_t left = part.num_rows - at;
    if (left <= 0) return;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    __m512 sum = rows[v];
    if (part.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, part.bias + at));
    _mm512_mask_storeu_ps(part.y + token * part.y_stride + at, mask, sum);
  }
}

void multiply(const Bf16Part& part) {
  Totals totals;
  const std::byte* tile = part.weights;
  for (std::int64_t row = 0; row < part.num_rows; row += kTileRows, tile += part.tile_bytes) {
    for (std::int64_t t = 0; t < part.num_tokens; ++t) {
      for (int v = 0; v < 2; ++v) _mm512_store_ps(totals.of[t][v], _mm512_setzero_ps());
    }
    for (std::int64_t k = 0; k < part.cols; k += kChunk) {
      const std::int64_t width = part.cols - k < kChunk ? part.cols - k : kChunk;
      // Blocks of nearly equal size: 9 tokens are 5 + 4, not 8 + 1.
      const std::int64_t blocks = (part.num_tokens + kBlock - 1) / kBlock;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t begin = b * part.num_tokens / blocks;
        const std::int64_t end = (b + 1) * part.num_tokens / blocks;
        add_tokens(end - begin, tile + k * kTileRows * 2, part.x + begin * part.x_stride + k,
                   part.x_stride, width, totals.of + begin);
      }
    }
    for (std::int64_t t = 0; t < part.num_tokens; ++t) store(totals.of[t], part, row, t);
  }
}

void round_row(const float* src, std::int64_t count, std::uint16_t* dst) {
  for (std::int64_t k = 0; k < count; k += 16) {
    const std::int64_t left = count - k;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    // A row of an odd length ends in one more number, a zero.
    const auto stored = static_cast<__mmask16>(left >= 16 ? mask : mask | (mask << (left % 2)));
    const auto rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, src + k));
    _mm256_mask_storeu_epi16(dst + k, stored, reinterpret_cast<__m256i>(rounded));
  }
}

}  // namespace

extern const Bf16Kernels kBf16Avx512;
const Bf16Kernels kBf16Avx512 = {.multiply = multiply, .round_row = round_row};

}  // namespace minisgl::kernels::cpu
