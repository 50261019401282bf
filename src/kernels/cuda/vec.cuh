// Eight numbers at a time, and sums over warps and blocks.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include <type_traits>

#include "tensor/dtype.h"

namespace minisgl::kernels::gpu {

using Bf16 = __nv_bfloat16;
using F16 = __half;
using Fp8 = __nv_fp8_e4m3;

template <class T>
struct DeviceType;
template <>
struct DeviceType<float> {
  using type = float;
};
template <>
struct DeviceType<BFloat16> {
  using type = Bf16;
};
template <>
struct DeviceType<Half> {
  using type = F16;
};

/// Calls f.operator()<T>() with the device's type for f32, bf16 or f16, which the caller has
/// checked.
template <class F>
void visit_device_float(DType type, F&& f) {
  if (type == DType::kBF16) {
    f.template operator()<Bf16>();
  } else if (type == DType::kF16) {
    f.template operator()<F16>();
  } else {
    f.template operator()<float>();
  }
}

/// Calls f.operator()<T, KV>() with the device's types for activations and for keys and values,
/// which the caller has given to check_attention_types().
template <class F>
void visit_attention_types(DType type, DType kv, F&& f) {
  const auto visit_kv = [&]<class T>() {
    if (kv == DType::kF8E4M3) {
      f.template operator()<T, Fp8>();
    } else if constexpr (std::is_same_v<T, F16>) {
      f.template operator()<F16, F16>();
    } else if (kv == DType::kBF16) {
      f.template operator()<T, Bf16>();
    } else {
      f.template operator()<T, float>();
    }
  };
  if (type == DType::kBF16) {
    visit_kv.template operator()<Bf16>();
  } else if (type == DType::kF16) {
    visit_kv.template operator()<F16>();
  } else {
    visit_kv.template operator()<float>();
  }
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __bfloat162float(x); }
__device__ inline float to_float(F16 x) { return __half2float(x); }
__device__ inline float to_float(Fp8 x) { return static_cast<float>(x); }
/// Rounds to nearest even; fp8 takes the largest number that it has for what is beyond.
template <class T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, F16>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, Fp8>) {
    return Fp8(x);
  } else {
    return x;
  }
}

/// Eight consecutive numbers, aligned to 16 bytes in memory.
struct Vec8 {
  float v[8];

  __device__ static Vec8 load(const float* p) {
    const float4 a = reinterpret_cast<const float4*>(p)[0];
    const float4 b = reinterpret_cast<const float4*>(p)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  __device__ static Vec8 load(const Bf16* p) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    Vec8 r;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r.v[2 * i] = __uint_as_float(words[i] << 16);
      r.v[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
    }
    return r;
  }
  __device__ static Vec8 load(const F16* p) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    const auto* pairs = reinterpret_cast<const __half2*>(&raw);
    Vec8 r;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(pairs[i]);
      r.v[2 * i] = pair.x;
      r.v[2 * i + 1] = pair.y;
    }
    return r;
  }
  __device__ void store(float* p) const {
    reinterpret_cast<float4*>(p)[0] = {v[0], v[1], v[2], v[3]};
    reinterpret_cast<float4*>(p)[1] = {v[4], v[5], v[6], v[7]};
  }
  __device__ void store(Bf16* p) const {
    __nv_bfloat162 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
    *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(pairs);
  }
  __device__ void store(F16* p) const {
    __half2 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
    *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(pairs);
  }
};

/// The sum over a warp, in every lane.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, d);
  return x;
}

/// The sum over a block of whole warps, in every thread; `shared` has room for 32 floats and may be
/// used again after the next barrier.
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = lane < warps ? shared[lane] : 0.0F;
  return warp_sum(x);
}

}  // namespace minisgl::kernels::gpu
