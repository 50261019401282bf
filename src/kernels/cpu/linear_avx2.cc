#include <immintrin.h>

#include "kernels/cpu/linear_tile_loops.h"

namespace minisgl::kernels::cpu {
namespace {

/// 8 lanes: a tile is two sets. 16 registers: 4 tokens x 2 vectors of sums, and 2 of codes.
struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr std::int64_t kRegisterTokens = 4;
  static constexpr std::int64_t kBlockTokens = 6;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float value) { return _mm256_set1_ps(value); }
  static F broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_f16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store(float* p, F value) { _mm256_storeu_ps(p, value); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }

  /// One group as 8 partial sums.
  static F fold_group(const float* x, int group) {
    const F first = add(load(x), load(x + 8));
    return group == 16 ? first : add(first, add(load(x + 16), load(x + 24)));
  }

  /// Four groups at a time: transposed while they are added up. Each sum is made in the same order
  /// in all four places.
  static void sum_groups(const float* x, std::int64_t cols, int group, float* sums) {
    for (std::int64_t k = 0; k < cols; k += 4 * group, sums += 4) {
      F v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        v[i] = k + i * group < cols ? fold_group(x + k + i * group, group) : zero();
      const F even = add(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
      const F odd = add(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
      const F all = add(_mm256_shuffle_ps(even, odd, 0x44), _mm256_shuffle_ps(even, odd, 0xEE));
      const __m128 four = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
      if (k + 4 * group <= cols) {
        _mm_storeu_ps(sums, four);
      } else {
        alignas(16) float rest[4];
        _mm_store_ps(rest, four);
        for (int i = 0; k + i * group < cols; ++i) sums[i] = rest[i];
      }
    }
  }

  /// Nibbles become bytes (even k, odd k), a byte shuffle turns codes into numbers, and two shifts
  /// bring a byte with its sign into a 32-bit lane.
  struct Int4 {
    static constexpr int kBits = 4;
    static constexpr bool kScaled = true;
    typedef int Words __attribute__((vector_size(32)));

    explicit Int4(const TileLayout& layout)
        : numbers(_mm256_broadcastsi128_si256(
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(&layout.numbers)))) {}

    struct Step {
      F get(int j, int v) const {
        const Words top = bytes[v][j % 2] << (24 - 8 * (j / 2));
        return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(top >> 24));
      }
      Words bytes[kVecs][2];
    };
    Step load(const std::byte* codes, int set) const {
      const __m256i mask = _mm256_set1_epi8(15);
      Step step;
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        const __m256i words =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + (set * kVecs + v) * 32));
        const __m256i even = _mm256_and_si256(words, mask);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(words, 4), mask);
        step.bytes[v][0] = reinterpret_cast<Words>(_mm256_shuffle_epi8(numbers, even));
        step.bytes[v][1] = reinterpret_cast<Words>(_mm256_shuffle_epi8(numbers, odd));
      }
      return step;
    }
    __m256i numbers;
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
    Step load(const std::byte* codes, int set) const {
      return {codes + set * kVecs * kLanes * (kBits / 8)};
    }
  };

  struct Int8 : Stored<Int8, 8, true> {
    using Stored::Stored;
    static F decode(const std::byte* p) {
      return _mm256_cvtepi32_ps(
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
  };
  struct F32 : Stored<F32, 32, false> {
    using Stored::Stored;
    static F decode(const std::byte* p) { return Avx2::load(reinterpret_cast<const float*>(p)); }
  };
  struct F16 : Stored<F16, 16, false> {
    using Stored::Stored;
    static F decode(const std::byte* p) { return load_f16(p); }
  };
  struct BF16 : Stored<BF16, 16, false> {
    using Stored::Stored;
    static F decode(const std::byte* p) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
  };
};

}  // namespace

extern const LinearKernels kLinearAvx2;
const LinearKernels kLinearAvx2 = {.simd = Simd::kAvx2,
                                   .few_tokens = 8,
                                   .multiply_tiles = multiply_tiles<Avx2>,
                                   .sum_groups = Avx2::sum_groups};

}  // namespace minisgl::kernels::cpu
