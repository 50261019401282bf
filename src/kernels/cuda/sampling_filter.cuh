// A row with min-p, top-k or top-p: which tokens stay, exactly, and a draw from them.

#pragma once

#include <cstdint>

#include "kernels/cuda/sampling_candidates.cuh"
#include "kernels/cuda/sampling_weight.cuh"
#include "kernels/philox.h"
#include "kernels/sampling.h"

namespace minisgl::kernels::gpu {

__device__ inline bool is_greedy(const SamplingRow& row) {
  return !(row.temperature >= kGreedyTemperature) || row.top_k == 1 || row.top_p <= 0;
}

__device__ inline bool has_filter(const SamplingRow& row, int vocab) {
  return row.min_p > 0 || (row.top_k > 0 && row.top_k < vocab) || row.top_p < 1;
}

/// Ascending with the number.
__device__ inline std::uint32_t key_of(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U);
}

/// A row while it is filtered, however many tokens stay; a block works on it. All threads call each
/// function alike.
class FilteredRow {
 public:
  __device__ FilteredRow(const float* logits, int vocab, const SamplingRow& how, float max)
      : logits_(logits), vocab_(vocab), weights_(how, max) {}

  /// Keeps the k greatest and what ties with the last of them.
  __device__ void keep_top_k(int k) {
    const Border border =
        find_border(static_cast<std::uint64_t>(k), [](float, float) { return std::uint64_t{1}; });
    least_key_ = max(least_key_, border.key);
  }

  /// Keeps the fewest of the greatest (of equals: the lowest ids) whose sum is at least top_p of
  /// all.
  __device__ void keep_top_p(float top_p) {
    const auto weight = [](float, float w) { return to_units(w); };
    const auto target = static_cast<std::uint64_t>(
        ceil(static_cast<double>(top_p) * static_cast<double>(total(weight))));
    const Border border = find_border(target, weight);
    if (border.ties == 0) return;  // all together do not reach it, by rounding
    least_key_ = max(least_key_, border.key);
    const std::uint64_t each = border.at / border.ties;
    const std::uint64_t needed = (target - border.above + each - 1) / each;
    if (needed < border.ties) last_tie_ = nth_tie(border.key, static_cast<int>(needed));
  }

  /// The token at bits / 2^32 of what is left, in order of the ids.
  __device__ int draw(std::uint32_t bits) const {
    __shared__ std::uint64_t sums[kRowThreads];
    __shared__ int found, drawn;
    const int each = (vocab_ + kRowThreads - 1) / kRowThreads;
    // Chunks of consecutive ids, a warp for each in turn so that reads are consecutive too.
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int chunk = warp; chunk < kRowThreads; chunk += kRowThreads / 32) {
      std::uint64_t sum = 0;
#pragma unroll 4
      for (int i = lane; i < each; i += 32) sum += units_at(chunk * each + i);
      for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0U, sum, d);
      if (lane == 0) sums[chunk] = sum;
    }
    if (threadIdx.x == 0) found = -1;
    __syncthreads();
    for (int d = 1; d < kRowThreads; d *= 2) {
      const std::uint64_t before =
          static_cast<int>(threadIdx.x) >= d ? sums[threadIdx.x - d] : std::uint64_t{0};
      __syncthreads();
      sums[threadIdx.x] += before;
      __syncthreads();
    }
    const std::uint64_t target = __umul64hi(sums[kRowThreads - 1], std::uint64_t{bits} << 32);
    const std::uint64_t before = threadIdx.x == 0 ? 0 : sums[threadIdx.x - 1];
    __shared__ std::uint64_t left_in_chunk;
    if (before <= target && target < sums[threadIdx.x]) {
      found = static_cast<int>(threadIdx.x) * each;
      left_in_chunk = target - before;
    }
    __syncthreads();
    if (warp == 0) {
      const int id = found < 0 ? -1 : locate_in_chunk(found, each, left_in_chunk, lane);
      if (lane == 0) drawn = id;
    }
    __syncthreads();
    return drawn;
  }

 private:
  /// The greatest key such that the measure of all from it upwards is the target or more.
  struct Border {
    std::uint32_t key;
    std::uint64_t above;  // measure of the greater keys
    std::uint64_t at;     // of this key
    std::uint64_t ties;   // tokens with this key
  };
  static constexpr int kBuckets = RowWeights::kBuckets;

  __device__ bool kept(float x, float weight, int id) const {
    const std::uint32_t key = key_of(x);
    return weights_.keeps(weight) && (key > least_key_ || (key == least_key_ && id <= last_tie_));
  }
  __device__ std::uint64_t units_at(int id) const {
    if (id >= vocab_) return 0;
    const float x = logits_[id];
    const float weight = weights_.of(x);
    return kept(x, weight, id) ? to_units(weight) : 0;
  }

  /// A warp: the token at `left` of the units of the tokens first .. first + count.
  __device__ int locate_in_chunk(int first, int count, std::uint64_t left, int lane) const {
    for (int begin = 0; begin < count; begin += 32) {
      std::uint64_t sum = begin + lane < count ? units_at(first + begin + lane) : std::uint64_t{0};
      for (int d = 1; d < 32; d *= 2) {  // sums up to and with each lane
        const std::uint64_t lower = __shfl_up_sync(~0U, sum, d);
        if (lane >= d) sum += lower;
      }
      const unsigned reached = __ballot_sync(~0U, left < sum);
      if (reached != 0) return first + begin + __ffs(static_cast<int>(reached)) - 1;
      left -= __shfl_sync(~0U, sum, 31);
    }
    return -1;  // not reached: the chunk was chosen because its sum is larger than `left`
  }

  /// visit(x, weight) for every token that is kept.
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    constexpr int kAhead = 8;  // loads in flight: a row is read many times, from the L2
    for (int begin = static_cast<int>(threadIdx.x); begin < vocab_; begin += kAhead * kRowThreads) {
      float x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int id = begin + i * kRowThreads;
        x[i] = id < vocab_ ? logits_[id] : -INFINITY;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float weight = weights_.of(x[i]);  // 0 beyond the end
        if (kept(x[i], weight, begin + i * kRowThreads)) visit(x[i], weight);
      }
    }
  }

  template <class Measure>
  __device__ std::uint64_t total(const Measure& measure) const {
    __shared__ unsigned long long sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    std::uint64_t mine = 0;
    for_each([&](float x, float weight) { mine += measure(x, weight); });
    for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(~0U, mine, d);
    if (threadIdx.x % 32 == 0) atomicAdd(&sum, static_cast<unsigned long long>(mine));
    __syncthreads();
    const std::uint64_t result = sum;
    __syncthreads();
    return result;
  }

  /// Five looks at the row: buckets by the distance from the maximum; then the bits of the key,
  /// eight at a time, of what is in the border's bucket. {0, 0, 0, 0} when all together do not
  /// reach the target.
  template <class Measure>
  __device__ Border find_border(std::uint64_t target, const Measure& measure) const {
    __shared__ unsigned long long sums[kBuckets];
    __shared__ int chosen;
    __shared__ std::uint64_t above_chosen;
    std::uint64_t above = 0;
    std::uint32_t prefix = 0;
    int first_bucket = 0;
    for (int level = 0; level < 5; ++level) {
      const int shift = 32 - 8 * level;
      if (threadIdx.x < kBuckets) sums[threadIdx.x] = 0;
      __syncthreads();
      for_each([&](float x, float weight) {
        const int distance = weights_.bucket(x);
        const std::uint32_t key = key_of(x);
        if (level == 0) {
          atomicAdd(&sums[distance], static_cast<unsigned long long>(measure(x, weight)));
        } else if (distance == first_bucket &&
                   (level == 1 || key >> (shift + 8 - 1) >> 1 == prefix)) {
          // The greatest digit first, as at level 0 the nearest bucket.
          atomicAdd(&sums[kBuckets - 1 - ((key >> shift) & 0xFF)],
                    static_cast<unsigned long long>(measure(x, weight)));
        }
      });
      __syncthreads();
      if (threadIdx.x == 0) {
        chosen = -1;
        std::uint64_t sum = above;
        for (int b = 0; b < kBuckets && chosen < 0; ++b) {
          if (sum + sums[b] >= target && sums[b] > 0) {
            chosen = b;
            above_chosen = sum;
          }
          sum += sums[b];
        }
      }
      __syncthreads();
      const int bucket_chosen = chosen;
      above = above_chosen;
      const std::uint64_t at = bucket_chosen >= 0 ? sums[bucket_chosen] : 0;
      __syncthreads();
      if (bucket_chosen < 0) return {0, 0, 0, 0};
      if (level == 0) {
        first_bucket = bucket_chosen;
        continue;
      }
      prefix = (prefix << 8) | static_cast<std::uint32_t>(kBuckets - 1 - bucket_chosen);
      if (level == 4) {
        const std::uint64_t ties = count_key(prefix);
        return {prefix, above, at, ties};
      }
    }
    return {0, 0, 0, 0};  // not reached
  }

  __device__ std::uint64_t count_key(std::uint32_t key) const {
    return total([key](float x, float) { return key_of(x) == key ? std::uint64_t{1} : 0; });
  }

  /// The id of the nth token (from 1) that is kept and has this key.
  __device__ int nth_tie(std::uint32_t key, int n) const {
    int seen = 0;
    for (int begin = 0; begin < vocab_; begin += kRowThreads) {
      const int id = begin + static_cast<int>(threadIdx.x);
      const float x = id < vocab_ ? logits_[id] : 0.0F;
      const bool tie = id < vocab_ && key_of(x) == key && kept(x, weights_.of(x), id);
      const int here = __syncthreads_count(static_cast<int>(tie));
      if (seen + here < n) {
        seen += here;
        continue;
      }
      __shared__ int found;
      if (threadIdx.x == 0) {
        for (int i = begin; i < vocab_; ++i) {
          if (key_of(logits_[i]) != key || !kept(logits_[i], weights_.of(logits_[i]), i)) continue;
          if (++seen < n) continue;
          found = i;
          break;
        }
      }
      __syncthreads();
      return found;
    }
    return vocab_;
  }

  const float* logits_;
  int vocab_;
  RowWeights weights_;
  std::uint32_t least_key_ = 0;
  int last_tie_ = 0x7FFFFFFF;  // of the tokens with least_key_
};

/// A draw after min-p, top-k and top-p, in this order. All threads of the block call it.
__device__ inline int draw_filtered(const float* logits, int vocab, const SamplingRow& how,
                                    float max, std::uint32_t bits) {
  Candidates few(logits, vocab, how, max);
  if (few.collect()) {
    if (how.top_k > 0 && how.top_k < vocab) few.keep_top_k();
    if (how.top_p < 1) few.keep_top_p();
    return few.draw(bits);
  }
  FilteredRow row(logits, vocab, how, max);
  if (how.top_k > 0 && how.top_k < vocab) row.keep_top_k(how.top_k);
  if (how.top_p < 1) row.keep_top_p(how.top_p);
  return row.draw(bits);
}

}  // namespace minisgl::kernels::gpu
