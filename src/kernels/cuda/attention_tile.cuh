// The inner parts of attention: tiles of keys and values on their way through shared memory, and
// what a warp does with one.

#pragma once

#include <climits>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {

/// Calls f.operator()<T, KV>() with the device's types; the caller has asked has_fast_types().
template <class F>
void visit_fast_types(AttentionTypes types, F&& f) {
  const auto visit_kv = [&]<class T>() {
    if (types.kv == DType::kF8E4M3) {
      f.template operator()<T, Fp8>();
    } else {
      f.template operator()<T, T>();
    }
  };
  if (types.activations == DType::kBF16) {
    visit_kv.template operator()<Bf16>();
  } else {
    visit_kv.template operator()<F16>();
  }
}

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTile = 64;  // keys
constexpr int kStages = 2;

/// Keys and values of a tile in shared memory, rows of kDim numbers of 2 bytes, in units of 16
/// bytes.
template <int kDim>
struct TileMemory {
  uint4* k;
  uint4* v;
  static constexpr int kUnits = kTile * kDim / 8;  // of each
};

/// `T` and `KV` are what is multiplied and what keys and values are in memory: the same, or fp8.
template <int kDim, class T, class KV>
constexpr int shared_bytes() {
  const int stages = kStages * 2 * kTile * kDim * static_cast<int>(sizeof(KV));
  return std::is_same_v<T, KV> ? stages : stages + 2 * TileMemory<kDim>::kUnits * 16;
}

template <class T>
__device__ inline std::uint32_t packed(float low, float high) {
  if constexpr (std::is_same_v<T, F16>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

/// Two numbers of fp8 as two of T, which can hold them.
template <class T>
__device__ inline std::uint32_t widened(std::uint32_t pair) {
  const __half2 half(
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3));
  if constexpr (std::is_same_v<T, F16>) {
    return *reinterpret_cast<const std::uint32_t*>(&half);
  } else {
    const float2 numbers = __half22float2(half);
    return packed<T>(numbers.x, numbers.y);
  }
}

/// 2^x as the special function unit computes it; 0 for -inf.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The keys [begin, end) that a row sees.
struct Visible {
  int begin, end;
};

/// One KV head of one sequence, as far as it is read.
struct KeySource {
  int seq, kv_head;
  int end_key;  ///< keys from here on are zeros
};

/// Starts copies of tiles to shared memory, which has kStages places for them, and a place for one
/// that was fp8. All threads call its functions alike.
template <int kDim, class T, class KV>
class TileLoader {
 public:
  __device__ TileLoader(const AttentionArgs& args, unsigned char* shared)
      : args_(args), memory_(reinterpret_cast<uint4*>(shared)) {}

  /// work(tile, first key) for the tiles [begin, end) of `source`, the next one on its way while
  /// the block works on the last.
  template <class Work>
  __device__ void run(const KeySource& source, int begin, int end, const Work& work) {
    load(source, begin, 0);
    commit();
    for (int tile = begin; tile < end; ++tile) {
      if (tile + 1 < end) {
        load(source, tile + 1, tile + 1 - begin);
        commit();
        await<1>();
      } else {
        await<0>();
      }
      __syncthreads();
      work(ready(tile - begin), tile * kTile);
      __syncthreads();
    }
  }

  /// Place i, whose tile has arrived and can be seen by all threads, as numbers of T. What was fp8
  /// is there until the next call.
  __device__ TileMemory<kDim> ready(int i) const {
    const TileMemory<kDim> from = place(i);
    if constexpr (kIsSame) {
      return from;
    } else {
      uint4* const wide = memory_ + kStages * 2 * kUnits;
      const TileMemory<kDim> to{wide, wide + TileMemory<kDim>::kUnits};
      for (int u = static_cast<int>(threadIdx.x); u < kUnits; u += kThreads) {
        const int row = u / kRowUnits;
        const int unit = u % kRowUnits;
        widen(from.k[u], to.k, row, 2 * unit);
        widen(from.v[u], to.v, row, 2 * unit);
      }
      __syncthreads();
      return to;
    }
  }

  /// The tile, to place i. Whole rows at a time: a row's units lie in consecutive threads. A warp
  /// copies sixteen rows, of which each lane looks one up. Written for few instructions: where
  /// blocks load a tile or two, fetching code takes as long as anything.
  __device__ void load(const KeySource& source, int tile, int i) const {
    constexpr int kRowsOfWarp = 32 / kRowUnits;  // at once
    constexpr int kSteps = kTile / kWarps / kRowsOfWarp;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto row_of = [warp](int step, int in_step) {
      return (step * kWarps + warp) * kRowsOfWarp + in_step;
    };
    const int looked_up = row_of(lane % 16 / kRowsOfWarp, lane % kRowsOfWarp) + tile * kTile;
    const int slot = args_.slot_of(source.seq, max(0, min(looked_up, source.end_key - 1)));
    const int unit = lane % kRowUnits;
    const int end_row = source.end_key - tile * kTile;
    const TileMemory<kDim> to = place(i);
    const auto* k = static_cast<const KV*>(args_.k) + source.kv_head * args_.kv_head_stride +
                    kUnitNumbers * unit;
    const auto* v = static_cast<const KV*>(args_.v) + source.kv_head * args_.kv_head_stride +
                    kUnitNumbers * unit;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int row = row_of(step, lane / kRowUnits);
      const std::int64_t at =
          std::int64_t{__shfl_sync(~0U, slot, step * kRowsOfWarp + lane / kRowUnits)} *
          args_.slot_stride;
      const int to_unit = kIsSame ? swizzled<kDim>(row, unit) : row * kRowUnits + unit;
      copy_async(to.k + to_unit, k + at, row < end_row);
      copy_async(to.v + to_unit, v + at, row < end_row);
    }
  }

  /// What was loaded since the last commit() is one group.
  __device__ static void commit() { asm volatile("cp.async.commit_group;"); }
  /// Until at most kLeft groups, the last ones, are on their way.
  template <int kLeft>
  __device__ static void await() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
  }

 private:
  static constexpr bool kIsSame = std::is_same_v<T, KV>;
  static constexpr int kUnitNumbers = 16 / static_cast<int>(sizeof(KV));
  static constexpr int kRowUnits = kDim / kUnitNumbers;
  static constexpr int kUnits = kTile * kRowUnits;  // of keys, as they arrive

  __device__ TileMemory<kDim> place(int i) const {
    uint4* at = memory_ + (i % kStages) * 2 * kUnits;
    return {at, at + kUnits};
  }

  /// 16 numbers, to units `unit` and `unit` + 1 of a row.
  __device__ static void widen(const uint4& from, uint4* to, int row, int unit) {
    to[swizzled<kDim>(row, unit)] = {widened<T>(from.x & 0xFFFFU), widened<T>(from.x >> 16),
                                     widened<T>(from.y & 0xFFFFU), widened<T>(from.y >> 16)};
    to[swizzled<kDim>(row, unit + 1)] = {widened<T>(from.z & 0xFFFFU), widened<T>(from.z >> 16),
                                         widened<T>(from.w & 0xFFFFU), widened<T>(from.w >> 16)};
  }

  const AttentionArgs& args_;
  uint4* memory_;
};

/// 16 rows of queries in the registers of a warp, and their softmax over the keys so far, kKeys at
/// a time. Lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8.
template <int kDim, int kKeys, class T>
class WarpRows {
 public:
  /// Null rows are zeros.
  __device__ void load_queries(const T* low, const T* high, int lane) {
    const int t = lane % 4;
    const auto word = [](const T* row, int at) {
      return row == nullptr ? 0U : *reinterpret_cast<const std::uint32_t*>(row + at);
    };
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      q_[i][0] = word(low, 16 * i + 2 * t);
      q_[i][1] = word(high, 16 * i + 2 * t);
      q_[i][2] = word(low, 16 * i + 2 * t + 8);
      q_[i][3] = word(high, 16 * i + 2 * t + 8);
    }
  }

  /// `row_of(i)` is row i.
  template <class RowOf>
  __device__ void load_queries(const RowOf& row_of, int lane) {
    load_queries(row_of(lane / 4), row_of(lane / 4 + 8), lane);
  }

  __device__ void add(const TileMemory<kDim>& tile, int first_row, int key, Visible all,
                      const AttentionArgs& args, int lane) {
    add(tile, first_row, key, all, all, args, lane);
  }

  /// Adds the keys that lie in rows first_row .. first_row + kKeys of the tile, whose first is key
  /// `key` of the sequence; `low` and `high` is what this lane's two rows see.
  __device__ void add(const TileMemory<kDim>& tile, int first_row, int key, Visible low,
                      Visible high, const AttentionArgs& args, int lane) {
    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
#pragma unroll
      for (int i = 0; i < kDim / 16; ++i) {
        std::uint32_t b[4];  // keys 0..7 and 8..15, each with numbers 0..7 and 8..15
        const int row = first_row + 16 * n + lane / 16 * 8 + lane % 8;
        load_matrices<false>(b, tile.k + swizzled<kDim>(row, 2 * i + lane / 8 % 2));
        multiply<T>(scores[2 * n], q_[i], b[0], b[1]);
        multiply<T>(scores[2 * n + 1], q_[i], b[2], b[3]);
      }
    }
    if (args.softcap != 0) cap(scores, args);
    if (key < max(low.begin, high.begin) || key + kKeys > min(low.end, high.end))
      mask(scores, key, low, high, lane);
    // Scores are scaled, to base 2, where they are used: one multiplication and subtraction in one.
    constexpr float kLog2E = 1.4426950408889634F;
    const float scale = args.scale * kLog2E;
    float best[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      best[0] = fmaxf(best[0], fmaxf(scores[n][0], scores[n][1]));
      best[1] = fmaxf(best[1], fmaxf(scores[n][2], scores[n][3]));
    }
    float factor[2];
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      best[r] = fmaxf(best[r], __shfl_xor_sync(~0U, best[r], 1));
      best[r] = fmaxf(best[r], __shfl_xor_sync(~0U, best[r], 2));
      best[r] = fmaxf(max_[r], best[r] * scale);
      base[r] = best[r] == -INFINITY ? 0.0F : best[r];  // nothing seen so far
      factor[r] = exp2_fast(max_[r] - base[r]);
      max_[r] = best[r];
      sum_[r] *= factor[r];
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[n][j] = exp2_fast(fmaf(scores[n][j], scale, -base[j / 2]));
        sum_[j / 2] += scores[n][j];
      }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) out_[n][j] *= factor[j / 2];
    add_values(tile, first_row, scores, lane);
  }

  /// values [num_rows][kDim], and of each of those rows the maximum and the sum.
  __device__ void write(float* values, float* maxima, float* sums, int num_rows, int lane) {
    sum_lanes();
    const int t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      if (row >= num_rows) continue;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        *reinterpret_cast<float2*>(values + row * kDim + 8 * n + 2 * t) =
            make_float2(out_[n][2 * half], out_[n][2 * half + 1]);
      if (t != 0) continue;
      // Of a warp that has seen nothing the weight is 2^-inf.
      maxima[row] = max_[half];
      sums[row] = sum_[half];
    }
  }

  /// The attention itself; null rows are not written.
  __device__ void write_output(T* low, T* high, int lane) {
    sum_lanes();
    const int t = lane % 4;
    const float inverse[2] = {1.0F / sum_[0], 1.0F / sum_[1]};
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      if (low != nullptr)
        *reinterpret_cast<std::uint32_t*>(low + 8 * n + 2 * t) =
            packed<T>(out_[n][0] * inverse[0], out_[n][1] * inverse[0]);
      if (high != nullptr)
        *reinterpret_cast<std::uint32_t*>(high + 8 * n + 2 * t) =
            packed<T>(out_[n][2] * inverse[1], out_[n][3] * inverse[1]);
    }
  }

 private:
  /// Products become what, scaled, is the capped score.
  __device__ void cap(float (&scores)[kKeys / 8][4], const AttentionArgs& args) const {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[n][j] = __fdividef(args.capped(scores[n][j]), args.scale);
  }

  /// -inf for keys that are not seen.
  __device__ void mask(float (&scores)[kKeys / 8][4], int key, Visible low, Visible high,
                       int lane) const {
    const int t = lane % 4;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const Visible& visible = j < 2 ? low : high;
        const int at = key + 8 * n + 2 * t + j % 2;
        if (at < visible.begin || at >= visible.end) scores[n][j] = -INFINITY;
      }
  }

  __device__ void add_values(const TileMemory<kDim>& tile, int first_row,
                             const float (&weights)[kKeys / 8][4], int lane) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const std::uint32_t a[4] = {packed<T>(weights[2 * i][0], weights[2 * i][1]),
                                  packed<T>(weights[2 * i][2], weights[2 * i][3]),
                                  packed<T>(weights[2 * i + 1][0], weights[2 * i + 1][1]),
                                  packed<T>(weights[2 * i + 1][2], weights[2 * i + 1][3])};
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        std::uint32_t b[4];  // numbers 0..7 of keys 0..7 and 8..15, then numbers 8..15
        const int row = first_row + 16 * i + lane / 8 % 2 * 8 + lane % 8;
        load_matrices<true>(b, tile.v + swizzled<kDim>(row, 2 * n + lane / 16));
        multiply<T>(out_[2 * n], a, b[0], b[1]);
        multiply<T>(out_[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  /// A row's sum lies in four lanes.
  __device__ void sum_lanes() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum_[r] += __shfl_xor_sync(~0U, sum_[r], 1);
      sum_[r] += __shfl_xor_sync(~0U, sum_[r], 2);
    }
  }

  std::uint32_t q_[kDim / 16][4];
  float out_[kDim / 8][4] = {};
  float max_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};
};

}  // namespace minisgl::kernels::gpu
