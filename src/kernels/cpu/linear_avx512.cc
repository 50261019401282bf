// GCC 12 takes the deliberately undefined pass-through operands of its own intrinsics for a mistake
// (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "kernels/cpu/linear_tile_loops.h"

namespace minisgl::kernels::cpu {
namespace {

/// 16 lanes: a set is a whole tile. 32 registers: 8 tokens x 2 vectors of sums, and 2 of codes.
struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr std::int64_t kRegisterTokens = 8;
  static constexpr std::int64_t kBlockTokens = 8;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float value) { return _mm512_set1_ps(value); }
  static F broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store(float* p, F value) { _mm512_storeu_ps(p, value); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }

  /// One group as 16 partial sums.
  static F fold_group(const float* x, int group) {
    return group == 16 ? load(x) : add(load(x), load(x + 16));
  }

  /// Four groups at a time: transposed while they are added up. Each sum is made in the same order
  /// in all four places.
  static void sum_groups(const float* x, std::int64_t cols, int group, float* sums) {
    for (std::int64_t k = 0; k < cols; k += 4 * group, sums += 4) {
      F v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        v[i] = k + i * group < cols ? fold_group(x + k + i * group, group) : zero();
      const F even = add(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
      const F odd = add(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
      const F all = add(_mm512_shuffle_ps(even, odd, 0x44), _mm512_shuffle_ps(even, odd, 0xEE));
      const __m256 half =
          _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
      const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
      if (k + 4 * group <= cols) {
        _mm_storeu_ps(sums, four);
      } else {
        _mm_mask_storeu_ps(sums, static_cast<__mmask8>((1 << (cols - k) / group) - 1), four);
      }
    }
  }

  /// A code becomes its number by one permutation of a table of 16, which ignores higher bits: so
  /// nibble j only needs a shift.
  struct Int4 {
    static constexpr int kBits = 4;
    static constexpr bool kScaled = true;
    typedef unsigned Words __attribute__((vector_size(64)));

    explicit Int4(const TileLayout& layout)
        : numbers(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(&layout.numbers))))) {}

    struct Step {
      F get(int j, int v) const {
        return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words[v] >> (4 * j)), numbers);
      }
      Words words[kVecs];
      F numbers;
    };
    Step load(const std::byte* codes, int /*set*/) const {
      return {{reinterpret_cast<Words>(_mm512_loadu_si512(codes)),
               reinterpret_cast<Words>(_mm512_loadu_si512(codes + 64))},
              numbers};
    }
    F numbers;
  };

  /// What has one number of kBits bits after the other.
  template <class Self, int kBitCount, bool kHasScale>
  struct Stored {
    static constexpr int kBits = kBitCount;
    static constexpr bool kScaled = kHasScale;
    explicit Stored(const TileLayout& /*layout*/) {}
    struct Step {
      F get(int j, int v) const {
        return Self::decode(codes + (j * kTileRows + v * kLanes) * (kBits / 8));
      }
      const std::byte* codes;
    };
    Step load(const std::byte* codes, int /*set*/) const { return {codes}; }
  };

  struct Int8 : Stored<Int8, 8, true> {
    using Stored::Stored;
    static F decode(const std::byte* p) {
      return _mm512_cvtepi32_ps(
          _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    }
  };
  struct F32 : Stored<F32, 32, false> {
    using Stored::Stored;
    static F decode(const std::byte* p) { return _mm512_loadu_ps(p); }
  };
  struct F16 : Stored<F16, 16, false> {
    using Stored::Stored;
    static F decode(const std::byte* p) { return load_f16(p); }
  };
  struct BF16 : Stored<BF16, 16, false> {
    using Stored::Stored;
    static F decode(const std::byte* p) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
  };
};

}  // namespace

extern const LinearKernels kLinearAvx512;
const LinearKernels kLinearAvx512 = {.simd = Simd::kAvx512,
                                     .few_tokens = 32,
                                     .multiply_tiles = multiply_tiles<Avx512>,
                                     .sum_groups = Avx512::sum_groups};

}  // namespace minisgl::kernels::cpu
