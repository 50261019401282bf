// Attention of few queries to a tile of keys, by one warp: the queries are columns.

#pragma once

#include <cstdint>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace minisgl::kernels::gpu {

/// Up to eight queries and their softmax over the keys so far, 16 keys at a time.
///
/// The tensor core's tile has 16 rows and 8 columns, and few queries would leave most of its rows
/// empty. So keys are rows here, S^T = K Q^T and O^T = V^T P^T: half the products and half the
/// registers of WarpRows. Lane (g, t) = (lane / 4, lane % 4) has queries 2 t and 2 t + 1.
template <int kDim, class T>
class WarpColumns {
 public:
  static constexpr int kQueries = 8;

  /// `row_of(i)` is query i; null: zeros.
  template <class RowOf>
  __device__ void load_queries(const RowOf& row_of, int lane) {
    const T* query = row_of(lane / 4);
    const int t = lane % 4;
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        q_[i][half] =
            query == nullptr
                ? 0U
                : *reinterpret_cast<const std::uint32_t*>(query + 16 * i + 8 * half + 2 * t);
  }

  /// Adds the keys that lie in rows first_row .. first_row + 16 of the tile, whose first is key
  /// `key` of the sequence.
  __device__ void add(const TileMemory<kDim>& tile, int first_row, int key, Visible visible,
                      const AttentionArgs& args, int lane) {
    float scores[4] = {};  // keys g, g and g + 8, g + 8, of both queries
    const int row = first_row + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      std::uint32_t keys[4];
      load_matrices<false>(keys, tile.k + swizzled<kDim>(row, 2 * i + lane / 16));
      multiply<T>(scores, keys, q_[i][0], q_[i][1]);
    }
    if (args.softcap != 0)
#pragma unroll
      for (float& score : scores) score = __fdividef(args.capped(score), args.scale);
    if (key < visible.begin || key + 16 > visible.end)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = key + lane / 4 + j / 2 * 8;
        if (at < visible.begin || at >= visible.end) scores[j] = -INFINITY;
      }
    // Scores are scaled, to base 2, where they are used.
    constexpr float kLog2E = 1.4426950408889634F;
    const float scale = args.scale * kLog2E;
    float factor[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float best = fmaxf(scores[c], scores[c + 2]);
#pragma unroll
      for (int d = 4; d < 32; d *= 2) best = fmaxf(best, __shfl_xor_sync(~0U, best, d));
      best = fmaxf(max_[c], best * scale);
      const float base = best == -INFINITY ? 0.0F : best;  // nothing seen so far
      factor[c] = exp2_fast(max_[c] - base);
      max_[c] = best;
      scores[c] = exp2_fast(fmaf(scores[c], scale, -base));
      scores[c + 2] = exp2_fast(fmaf(scores[c + 2], scale, -base));
      sum_[c] = sum_[c] * factor[c] + scores[c] + scores[c + 2];
    }
    // A lane has a key's weights for two queries, and the next product wants a query's for two
    // keys.
    const std::uint32_t weights[2] = {transposed(packed<T>(scores[0], scores[1])),
                                      transposed(packed<T>(scores[2], scores[3]))};
    const int value_row = first_row + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) out_[n][j] *= factor[j % 2];
      std::uint32_t values[4];
      load_matrices<true>(values, tile.v + swizzled<kDim>(value_row, 2 * n + lane / 8 % 2));
      multiply<T>(out_[n], values, weights[0], weights[1]);
    }
  }

  /// values [num_queries][kDim], and of each of those queries the maximum and the sum.
  __device__ void write(float* values, float* maxima, float* sums, int num_queries, int lane) {
    const int g = lane / 4;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = sum_[c];
#pragma unroll
      for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(~0U, sum, d);
      const int query = lane % 4 * 2 + c;
      if (query >= num_queries) continue;
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        values[query * kDim + 16 * n + g] = out_[n][c];
        values[query * kDim + 16 * n + g + 8] = out_[n][c + 2];
      }
      if (g != 0) continue;
      // Of a warp that has seen nothing the weight is 2^-inf.
      maxima[query] = max_[c];
      sums[query] = sum;
    }
  }

 private:
  /// Of an 8 x 8 matrix of 2 bytes each, whose row g the four lanes of g have, two numbers each.
  __device__ static std::uint32_t transposed(std::uint32_t pair) {
    std::uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
  }

  std::uint32_t q_[kDim / 16][2];
  float out_[kDim / 16][4] = {};  // numbers 16 n + g, and 8 further, of both queries
  float max_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};
};

}  // namespace minisgl::kernels::gpu
