// Where the sums of a product's tile go: from the registers in which wgmma leaves them to y, with
// what the product does on the way. For hopper_product.cuh.

#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/linear.h"

namespace minisgl::kernels::gpu {
namespace {

struct ProductOutput {
  void* y;
  const float* bias;
  std::int64_t stride;
  int tokens, rows;
  int token_tiles, items;  ///< an item is kShare tiles of rows with the same tokens
  int column_tiles;
  bool bf16;
  Into into;
};

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(both);
}

/// What the sums of 64 tokens are added to, if they are: all of it is asked for before any is
/// needed.
template <int kEights>
struct Before {
  float2 v[2][kEights];

  __device__ __forceinline__ void load(const ProductOutput& out, int token, int first_row) {
    if (out.into != Into::kAdd) return;
    const int column = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        if (token + 8 * half < out.tokens && first_row + 8 * e < out.rows)
          v[half][e] = *reinterpret_cast<const float2*>(static_cast<const float*>(out.y) +
                                                        (token + 8 * half) * out.stride +
                                                        first_row + 8 * e + column);
  }
};

/// Puts the sums of 64 tokens to where they belong. A thread has, of every eight rows of w, two
/// neighbours' sums with the tokens `token` and `token + 8`; four threads have one token. They
/// exchange numbers so that each stores 8 bytes.
template <int kFirst, int kEights, int kSums>
__device__ __forceinline__ void put_sums(const ProductOutput& out, float (&sums)[kSums], int token,
                                         int first_row, const Before<kEights>& before) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool gated = is_gated(out.into);
  const auto row_of = [&](int eight) { return first_row + 8 * eight; };
  if (out.bias != nullptr) {
#pragma unroll
    for (int e = kFirst; e < kFirst + kEights; ++e) {
      const int row = row_of(e) + 2 * lane;
      if (row >= out.rows) continue;
      const float low = out.bias[gated ? row / 2 : row];
      const float high = out.bias[gated ? out.rows / 2 + row / 2 : row + 1];
      sums[4 * e] += low;
      sums[4 * e + 1] += high;
      sums[4 * e + 2] += low;
      sums[4 * e + 3] += high;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = token + 8 * half;
    const bool inside = at < out.tokens;
    if (!out.bf16) {
      if (!inside) continue;
      float* const y = static_cast<float*>(out.y) + at * out.stride + 2 * lane;
#pragma unroll
      for (int e = kFirst; e < kFirst + kEights; ++e) {
        if (row_of(e) >= out.rows) break;
        float2* const place = reinterpret_cast<float2*>(y + row_of(e));
        float2 value = {sums[4 * e + 2 * half], sums[4 * e + 2 * half + 1]};
        if (out.into == Into::kAdd) {
          value.x += before.v[half][e - kFirst].x;
          value.y += before.v[half][e - kFirst].y;
        }
        *place = value;
      }
      continue;
    }
    auto* const y = static_cast<__nv_bfloat16*>(out.y) + at * out.stride;
    if (!gated) {
#pragma unroll
      for (int e = kFirst; e < kFirst + kEights; e += 2) {
        const std::uint32_t here = pack_bf16(sums[4 * e + 2 * half], sums[4 * e + 2 * half + 1]);
        if (e + 1 == kFirst + kEights) {
          if (inside && row_of(e) < out.rows)
            *reinterpret_cast<std::uint32_t*>(y + row_of(e) + 2 * lane) = here;
          break;
        }
        const int f = e + 1 < kFirst + kEights ? e + 1 : e;
        const std::uint32_t next = pack_bf16(sums[4 * f + 2 * half], sums[4 * f + 2 * half + 1]);
        const bool odd = lane % 2 != 0;
        const std::uint32_t other = __shfl_xor_sync(~0U, odd ? here : next, 1);
        const int row = row_of(odd ? f : e);
        if (inside && row < out.rows)
          *reinterpret_cast<uint2*>(y + row + lane / 2 * 4) =
              odd ? uint2{other, next} : uint2{here, other};
      }
      continue;
    }
    const auto gate = [&](int e) {
      const float value = sums[4 * e + 2 * half];
      return (out.into == Into::kSilu ? activated<false>(value) : activated<true>(value)) *
             sums[4 * e + 2 * half + 1];
    };
    constexpr int kWhole = kEights / 4 * 4;
#pragma unroll
    for (int e = kFirst; e < kFirst + kWhole; e += 4) {
      const bool odd = lane % 2 != 0, upper = lane >= 2;
      const std::uint32_t even_eights = pack_bf16(gate(e), gate(e + 2));
      const std::uint32_t odd_eights = pack_bf16(gate(e + 1), gate(e + 3));
      const std::uint32_t from = __shfl_xor_sync(~0U, odd ? even_eights : odd_eights, 1);
      const std::uint32_t left = odd ? from : even_eights, right = odd ? odd_eights : from;
      const std::uint32_t first = __byte_perm(left, right, 0x5410);   // of the eight e + lane % 2
      const std::uint32_t second = __byte_perm(left, right, 0x7632);  // two eights later
      const std::uint32_t other = __shfl_xor_sync(~0U, upper ? first : second, 2);
      const int row = row_of(e + lane);
      if (inside && row < out.rows)
        *reinterpret_cast<uint2*>(y + row / 2) = upper ? uint2{other, second} : uint2{first, other};
    }
#pragma unroll
    for (int e = kFirst + kWhole; e < kFirst + kEights; ++e)
      if (inside && row_of(e) < out.rows) y[row_of(e) / 2 + lane] = __float2bfloat16(gate(e));
  }
}

/// A few at a time, for want of registers.
template <int kAtOnce, int kEights, int kFirst = 0, int kSums>
__device__ __forceinline__ void put_all(const ProductOutput& out, float (&sums)[kSums], int token,
                                        int first_row) {
  constexpr int kPart = std::min(kAtOnce, kEights - kFirst);
  Before<kPart> before;
  before.load(out, token, first_row + 8 * kFirst);
  put_sums<kFirst, kPart>(out, sums, token, first_row, before);
  if constexpr (kFirst + kPart < kEights)
    put_all<kAtOnce, kEights, kFirst + kPart>(out, sums, token, first_row);
}

}  // namespace
}  // namespace minisgl::kernels::gpu
