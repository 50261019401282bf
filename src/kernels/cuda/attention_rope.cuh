// What decode attention does before, in steps of few rows: norms and rotation of queries and keys,
// and the store of the new key and value.

#pragma once

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/rotation.cuh"
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

/// What turns a position's heads, as far as this lane needs it: numbers lane + 32 i and kDim / 2
/// further. Of no kernel before, so that it may be on its way while those still run.
template <int kDim>
struct Rotation {
  static constexpr int kHalf = kDim / 2;
  static constexpr int kPairs = kHalf / 32;
  struct Norm {
    float low[kPairs], high[kPairs];

    __device__ void load(const float* weight, int lane) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        low[i] = weight == nullptr ? 1.0F : weight[lane + 32 * i];
        high[i] = weight == nullptr ? 1.0F : weight[lane + 32 * i + kHalf];
      }
    }
  };
  float cos[kPairs], sin[kPairs];
  Norm q, k;

  __device__ void load(const RopeInputs& rope, int position, int lane) {
    const float* table = rope.table + position * rope.table_stride;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      cos[i] = table[lane + 32 * i];
      sin[i] = table[lane + 32 * i + kHalf];
    }
    q.load(rope.q_norm, lane);
    k.load(rope.k_norm, lane);
  }
};

/// to = rope(norm(from)), with the bits that kernels/cuda/rope.cu gives. One warp.
template <int kDim>
__device__ void rotate_head(const Bf16* from, const Rotation<kDim>& rotation, bool is_key,
                            bool has_norm, float eps, Bf16* to, int lane) {
  constexpr int kHalf = kDim / 2;
  constexpr int kPairs = kHalf / 32;
  Pair pairs[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i)
    pairs[i] = {to_float(from[lane + 32 * i]), to_float(from[lane + 32 * i + kHalf])};
  if (has_norm) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float four = square_of(pairs[i]);
      four += __shfl_xor_sync(~0U, four, 1);
      four += __shfl_xor_sync(~0U, four, 2);
      sum += four;
    }
#pragma unroll
    for (int distance = 16; distance > 2; distance /= 2) sum += __shfl_xor_sync(~0U, sum, distance);
    const float scale = norm_scale(sum, kDim, eps);
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      pairs[i] = normed(pairs[i], scale,
                        {is_key ? rotation.k.low[i] : rotation.q.low[i],
                         is_key ? rotation.k.high[i] : rotation.q.high[i]});
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const Pair pair = rotated(pairs[i], rotation.cos[i], rotation.sin[i]);
    to[lane + 32 * i] = __float2bfloat16_rn(pair.low);
    to[lane + 32 * i + kHalf] = __float2bfloat16_rn(pair.high);
  }
}

/// All threads call it; `rows` may be read after the next barrier. `has_last`: the block's piece
/// has the sequence's last key, which it then also leaves in the pool.
template <int kDim>
__device__ void prepare_rows(const AttentionArgs& args, const RopeInputs& rope,
                             const Rotation<kDim>& rotation, int slot, int seq, bool has_last,
                             NewRows<kDim>& rows) {
  const auto kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = seq * args.q_stride;
  const std::int64_t at =
      std::int64_t{slot} * args.slot_stride + std::int64_t{kv_head} * args.kv_head_stride;
  // The key comes behind the queries, so that there is one copy of the code.
#pragma unroll 1
  for (int i = warp; i < args.group + (has_last ? 1 : 0); i += kWarps) {
    const bool is_key = i == args.group;
    const Bf16* from = is_key ? rope.keys + row + kv_head * kDim
                              : static_cast<const Bf16*>(args.q) + row +
                                    (kv_head * args.group + i) * args.q_head_stride;
    uint4* const to = is_key ? rows.key : rows.queries[i];
    rotate_head<kDim>(from, rotation, is_key, (is_key ? rope.k_norm : rope.q_norm) != nullptr,
                      rope.eps, reinterpret_cast<Bf16*>(to), lane);
    if (!is_key) continue;
    __syncwarp();
    if (lane < kDim / 8) reinterpret_cast<uint4*>(rope.pool_keys + at)[lane] = rows.key[lane];
  }
  if (has_last && warp == kWarps - 1 && lane < kDim / 8) {
    rows.value[lane] =
        reinterpret_cast<const uint4*>(rope.values + row + std::int64_t{kv_head} * kDim)[lane];
    reinterpret_cast<uint4*>(rope.pool_values + at)[lane] = rows.value[lane];
  }
}

}  // namespace minisgl::kernels::gpu
