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
using VecU = std::uint32_t __attribute__((vector_size(4 * kW)));
using VecH = std::uint16_t __attribute__((vector_size(2 * kW)));

/// Whether fma() rounds once.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kFusedFma = true;
#else
constexpr bool kFusedFma = false;
#endif

/// Bit patterns of narrow floats (those of tensor/dtype.h come with inline functions).
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

#define MINISGL_INLINE static inline __attribute__((always_inline))

MINISGL_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

MINISGL_INLINE void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }

MINISGL_INLINE Vec set1(float x) { return x - Vec{}; }  // x - 0 is x, also for -0

/// kW narrow floats, widened without loss.
MINISGL_INLINE Vec load(const Bf16* p) {
  VecH half;
  __builtin_memcpy(&half, p, sizeof(half));
  return reinterpret_cast<Vec>(__builtin_convertvector(half, VecU) << 16);
}

MINISGL_INLINE Vec load(const F16* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  VecH half;
  __builtin_memcpy(&half, p, sizeof(half));
  const VecU bits = __builtin_convertvector(half, VecU);
  // Exponent and fraction in their place are 2^112 too small, exactly so for subnormals too; the
  // exponent of infinities and NaN stays all ones.
  const VecU magnitude = (bits & 0x7FFFU) << 13;
  const VecU special = reinterpret_cast<VecU>(magnitude >= (0x7C00U << 13)) & 0x7F800000U;
  const Vec value = reinterpret_cast<Vec>(magnitude) * set1(0x1p112F);
  return reinterpret_cast<Vec>(reinterpret_cast<VecU>(value) | special | (bits & 0x8000U) << 16);
#endif
}

MINISGL_INLINE float widen(float x) { return x; }
template <class T>
MINISGL_INLINE float widen(T x) {
  const T lanes[kW] = {x};
  return load(lanes)[0];
}

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

template <class T>
MINISGL_INLINE Vec load_part(const T* p, std::int64_t count) {
  T lanes[kW] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
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

/// Sets the first `count` lanes to `other`, keeps the others.
MINISGL_INLINE Vec drop_first(Vec v, std::int32_t count, float other) {
  return iota() < count ? set1(other) : v;
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

/// tanh(x): a polynomial below 0.625, else from exp(2 |x|) (coefficients: Moshier, Cephes,
/// tanhf.c). At most 3 units in the last place; NaN for NaN.
MINISGL_INLINE Vec tanh(Vec x) {
  const VecU sign = reinterpret_cast<VecU>(x) & 0x80000000U;
  const Vec a = reinterpret_cast<Vec>(reinterpret_cast<VecU>(x) ^ sign);
  const Vec tail = set1(1.0F) - set1(2.0F) / (exp(a + a) + set1(1.0F));
  const Vec z = x * x;
  Vec p = set1(-5.70498872745e-3F);
  p = fma(p, z, set1(2.06390887954e-2F));
  p = fma(p, z, set1(-5.37397155531e-2F));
  p = fma(p, z, set1(1.33314422036e-1F));
  p = fma(p, z, set1(-3.33332819422e-1F));
  const Vec small = fma(p * z, x, x);
  return a < set1(0.625F) ? small : reinterpret_cast<Vec>(reinterpret_cast<VecU>(tail) | sign);
}

}  // namespace minisgl::kernels::MINISGL_ISA
