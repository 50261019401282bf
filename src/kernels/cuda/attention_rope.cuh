// What decode attention does before, in steps of few rows: norms and rotation of queries and keys,
// and the store of the new key and value.

#pragma once

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {

/// Of a step whose queries, keys and values still are what their product gave (AttentionArgs::q is
/// the query part of it): norms, rotation and the store are done here, by the block that needs
/// them.
struct RopeInputs {
  const Bf16 *keys, *values;        ///< [sequences][KV heads][kDim], sequences q_stride apart
  const float* table;               ///< [positions][kDim]: cosines, then sines
  const float *q_norm, *k_norm;     ///< [kDim], or null
  const int *positions, *out_locs;  ///< [sequences]
  Bf16 *pool_keys, *pool_values;
  std::int64_t table_stride;
  float eps;

  struct Place {
    int position, slot;
  };
  __device__ Place place_of(int seq) const { return {positions[seq], out_locs[seq]}; }
};

/// A sequence's queries of this KV head, and its new key and value.
template <int kDim>
struct NewRows {
  uint4 queries[16][kDim / 8];
  uint4 key[kDim / 8], value[kDim / 8];
};

/// As kernels/cuda/rope.cu computes it: to = rope(norm(from)). One warp.
template <int kDim>
__device__ void rotate_head(const Bf16* from, const float* norm, float eps, const float* cos_sin,
                            Bf16* to, int lane) {
  constexpr int kHalf = kDim / 2;
  constexpr int kPairs = kHalf / 32;
  float low[kPairs], high[kPairs];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int d = lane + 32 * i;
    low[i] = to_float(from[d]);
    high[i] = to_float(from[d + kHalf]);
    squares += low[i] * low[i] + high[i] * high[i];
  }
  if (norm != nullptr) {
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] *= scale * norm[lane + 32 * i];
      high[i] *= scale * norm[lane + 32 * i + kHalf];
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int d = lane + 32 * i;
    const float cos = cos_sin[d];
    const float sin = cos_sin[kHalf + d];
    to[d] = __float2bfloat16_rn(low[i] * cos - high[i] * sin);
    to[d + kHalf] = __float2bfloat16_rn(high[i] * cos + low[i] * sin);
  }
}

/// All threads call it; `rows` may be read after the next barrier. `has_last`: the block's piece
/// has the sequence's last key, which it then also leaves in the pool.
template <int kDim>
__device__ void prepare_rows(const AttentionArgs& args, const RopeInputs& rope,
                             const RopeInputs::Place& place, int seq, bool has_last,
                             NewRows<kDim>& rows) {
  const auto kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* cos_sin = rope.table + place.position * rope.table_stride;
  const std::int64_t row = seq * args.q_stride;
  for (int i = warp; i < args.group; i += kWarps)
    rotate_head<kDim>(
        static_cast<const Bf16*>(args.q) + row + (kv_head * args.group + i) * args.q_head_stride,
        rope.q_norm, rope.eps, cos_sin, reinterpret_cast<Bf16*>(rows.queries[i]), lane);
  if (!has_last) return;
  const std::int64_t slot = place.slot * args.slot_stride + kv_head * args.kv_head_stride;
  const int unit = lane;
  if (warp == kWarps - 1 && unit < kDim / 8) {
    rows.value[unit] =
        reinterpret_cast<const uint4*>(rope.values + row + std::int64_t{kv_head} * kDim)[unit];
    reinterpret_cast<uint4*>(rope.pool_values + slot)[unit] = rows.value[unit];
  }
  if (warp == kWarps - 2) {
    rotate_head<kDim>(rope.keys + row + std::int64_t{kv_head} * kDim, rope.k_norm, rope.eps,
                      cos_sin, reinterpret_cast<Bf16*>(rows.key), lane);
    __syncwarp();
    if (unit < kDim / 8) reinterpret_cast<uint4*>(rope.pool_keys + slot)[unit] = rows.key[unit];
  }
}

}  // namespace minisgl::kernels::gpu
