// Vectors of floats, as wide as the instruction set that this copy is compiled for.
//
// Only what has internal linkage may be used here and in the files that include this: an inline
// function of a shared header, compiled with AVX-512, could be the copy that the linker keeps for
// everybody.

#pragma once

#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors never cross a call: all is inlined
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12's own _mm512_undefined_ps()
#pragma GCC diagnostic ignored "-Wuninitialized"        // the same
#endif

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace minisgl::kernels::MINISGL_ISA {

#if defined(__AVX512F__)
constexpr int kW = 16;
#elif defined(__AVX2__)
constexpr int kW = 8;
#else
constexpr int kW = 4;
#endif

using Vec = float __attribute__((vector_size(4 * kW)));
using VecI = std::int32_t __attribute__((vector_size(4 * kW)));

#define MINISGL_INLINE static inline __attribute__((always_inline))

MINISGL_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

MINISGL_INLINE void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }

MINISGL_INLINE Vec set1(float x) { return x - Vec{}; }  // x - 0 is x, also for -0

/// The first `count` (0 .. kW) floats; zero in the other lanes.
MINISGL_INLINE Vec load_part(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p);
#else
  float lanes[kW] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
#endif
}

MINISGL_INLINE void store_part(float* p, Vec v, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << count) - 1), v);
#else
  float lanes[kW];
  store(lanes, v);
  for (std::int64_t i = 0; i < count; ++i) p[i] = lanes[i];
#endif
}

/// a * b + c, rounded once where that is one instruction.
MINISGL_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

/// The greater one; `b` if one of them is NaN.
MINISGL_INLINE Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

MINISGL_INLINE Vec min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

/// {0, 1, 2, ...}
MINISGL_INLINE VecI iota() {
  VecI v;
  for (int i = 0; i < kW; ++i) v[i] = i;
  return v;
}

/// Keeps the first `count` lanes, sets the others to `other`.
MINISGL_INLINE Vec keep_first(Vec v, std::int32_t count, float other) {
  return iota() < count ? v : set1(other);
}

/// The sum of the lanes, by halves: ((l0 + l8) + (l4 + l12)) + ...
MINISGL_INLINE float sum(Vec v) {
  float lanes[kW];
  store(lanes, v);
  for (int half = kW / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

MINISGL_INLINE float max_lane(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#else
  float lanes[kW];
  store(lanes, v);
  for (int half = kW / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  return lanes[0];
#endif
}

/// exp(x): x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial for exp(r) (coefficients and the
/// split of ln 2: Moshier, Cephes, expf.c) and 2^n in two factors, so that subnormal results are
/// rounded once. At most 2 units in the last place; 0 for -inf, inf for +inf, NaN for NaN, exactly
/// 1 for 0. Without kFused the result has the same bits on every machine.
template <bool kFused = true>
MINISGL_INLINE Vec exp(Vec x) {
  const auto mad = [](Vec a, Vec b, Vec c) { return kFused ? fma(a, b, c) : a * b + c; };
  x = max(set1(-104.0F), min(set1(89.0F), x));  // in this order NaN stays
  constexpr float kMagic = 0x1.8p23F;           // adding it rounds to an integer
  const Vec shifted = mad(x, set1(1.44269504088896341F), set1(kMagic));
  const Vec n = shifted - set1(kMagic);
  Vec r = mad(n, set1(-0.693359375F), x);  // exact: 9 bits times n
  r = mad(n, set1(2.12194440e-4F), r);
  Vec p = set1(1.9875691500e-4F);
  p = mad(p, r, set1(1.3981999507e-3F));
  p = mad(p, r, set1(8.3334519073e-3F));
  p = mad(p, r, set1(4.1665795894e-2F));
  p = mad(p, r, set1(1.6666665459e-1F));
  p = mad(p, r, set1(5.0000001201e-1F));
  const Vec y = mad(p, r * r, r) + set1(1.0F);
#if defined(__AVX512F__)
  return _mm512_scalef_ps(y, n);  // the same bits as below
#else
  const VecI bits = reinterpret_cast<VecI>(shifted) - 0x4B400000;
  const VecI low = bits >> 1;
  const VecI first = (low + 127) << 23;
  const VecI second = (bits - low + 127) << 23;
  return y * reinterpret_cast<Vec>(first) * reinterpret_cast<Vec>(second);
#endif
}

}  // namespace minisgl::kernels::MINISGL_ISA
