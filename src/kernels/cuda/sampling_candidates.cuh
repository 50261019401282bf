// A row with filters whose draw is among few tokens, as nearly always: the row is read twice, once
// to see which tokens may stay and once to take them to shared memory, where the rest is done.

#pragma once

#include <cstdint>

#include "kernels/cuda/sampling_weight.cuh"

namespace minisgl::kernels::gpu {

/// The tokens that may stay after min-p, top-k and top-p. A block works on them; all threads call
/// each function alike.
class Candidates {
 public:
  static constexpr int kMost = 1024;

  __device__ Candidates(const float* logits, int vocab, const SamplingRow& how, float max)
      : logits_(logits), vocab_(vocab), how_(how), weights_(how, max) {}

  /// Finds them. False when there are more than kMost; then nothing else may be called.
  __device__ bool collect() {
    Shared& s = shared();
    // Nearly always the filter ends near the maximum, where few tokens are.
    look(kNearBuckets);
    if (s.last_bucket == kBuckets - 1) look(kBuckets - 1);
    if (s.num_expected > kMost) return false;
    const int last = s.last_bucket;
    for_each([&](float x, int id) {
      if (weights_.bucket(x) > last) return;
      const float weight = weights_.of(x);
      if (!weights_.keeps(weight)) return;
      const int at = atomicAdd(&s.num, 1);
      s.x[at] = x;
      s.id[at] = id;
      s.weight[at] = to_units(weight);
    });
    __syncthreads();
    return true;
  }

  /// Keeps those that fewer than top_k are greater than.
  __device__ void keep_top_k() {
    Shared& s = shared();
    bool stays[kEach];
    for_mine([&](int i, int mine) {
      int greater = 0;
      for (int j = 0; j < s.num; ++j) greater += static_cast<int>(s.x[j] > s.x[i]);
      stays[mine] = greater < how_.top_k;
    });
    drop_others(stays);
  }

  /// Keeps the fewest of the greatest (of equals: the lowest ids) whose sum is at least top_p of
  /// all that were left.
  __device__ void keep_top_p() {
    Shared& s = shared();
    // Without top-k, tokens that are no candidates count too.
    const std::uint64_t all = has_top_k() ? total() : s.total;
    const auto target = static_cast<std::uint64_t>(
        ceil(static_cast<double>(how_.top_p) * static_cast<double>(all)));
    bool stays[kEach];
    for_mine([&](int i, int mine) {
      std::uint64_t before = 0;
      for (int j = 0; j < s.num; ++j) {
        const bool first = s.x[j] > s.x[i] || (s.x[j] == s.x[i] && s.id[j] < s.id[i]);
        before += first ? s.weight[j] : 0;
      }
      stays[mine] = before < target;
    });
    drop_others(stays);
  }

  /// The token at bits / 2^32 of what is left, in order of the ids.
  __device__ int draw(std::uint32_t bits) const {
    Shared& s = shared();
    const std::uint64_t target = __umul64hi(total(), std::uint64_t{bits} << 32);
    if (threadIdx.x == 0) s.drawn = -1;
    __syncthreads();
    for_mine([&](int i, int) {
      if (s.weight[i] == 0) return;
      std::uint64_t before = 0;
      for (int j = 0; j < s.num; ++j) before += s.id[j] < s.id[i] ? s.weight[j] : 0;
      if (before <= target && target < before + s.weight[i]) s.drawn = s.id[i];
    });
    __syncthreads();
    return s.drawn;
  }

 private:
  static constexpr int kBuckets = RowWeights::kBuckets;
  static constexpr int kNearBuckets = 64;
  static constexpr int kEach = kMost / kRowThreads;

  struct Shared {
    unsigned counts[kBuckets];
    unsigned long long units[kBuckets];
    unsigned long long total, sum;
    std::uint64_t weight[kMost];  // 0: dropped
    float x[kMost];
    int id[kMost];
    int num, num_expected, last_bucket, drawn;
  };
  __device__ static Shared& shared() {
    __shared__ Shared s;
    return s;
  }

  __device__ bool has_top_k() const { return how_.top_k > 0 && how_.top_k < vocab_; }

  /// visit(x, id) for every token.
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    constexpr int kAhead = 16;  // loads in flight
    for (int begin = static_cast<int>(threadIdx.x); begin < vocab_; begin += kAhead * kRowThreads) {
      float x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int id = begin + i * kRowThreads;
        x[i] = id < vocab_ ? logits_[id] : -INFINITY;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) visit(x[i], begin + i * kRowThreads);
    }
  }

  /// visit(candidate, which of the thread's it is).
  template <class Visit>
  __device__ void for_mine(const Visit& visit) const {
#pragma unroll
    for (int mine = 0; mine < kEach; ++mine) {
      const int i = mine * kRowThreads + static_cast<int>(threadIdx.x);
      if (i < shared().num) visit(i, mine);
    }
  }

  __device__ void drop_others(const bool (&stays)[kEach]) {
    __syncthreads();  // every thread has read all weights
    for_mine([&](int i, int mine) {
      if (!stays[mine]) shared().weight[i] = 0;
    });
    __syncthreads();
  }

  /// Fills the buckets and finds the last one that has a token which may stay. Tokens from bucket
  /// `far` on all count to the last bucket.
  __device__ void look(int far) const {
    Shared& s = shared();
    __syncthreads();
    for (int b = static_cast<int>(threadIdx.x); b < kBuckets; b += kRowThreads) {
      s.counts[b] = 0;
      s.units[b] = 0;
    }
    if (threadIdx.x == 0) s.num = 0;
    __syncthreads();
    fill_buckets(far);
    __syncthreads();
    if (threadIdx.x < 32) find_last_bucket();
    __syncthreads();
  }

  __device__ void fill_buckets(int far) const {
    Shared& s = shared();
    // Most of a row is far: no atomic operations for it.
    unsigned far_count = 0;
    std::uint64_t far_units = 0;
    // Tokens of weight 0 may be counted: they are the last, and drawn by nobody.
    const bool only_count = has_top_k() && how_.min_p <= 0;
    for_each([&](float x, int) {
      const int bucket = weights_.bucket(x);
      if (only_count) {
        if (bucket < far) {
          atomicAdd(&s.counts[bucket], 1U);
        } else {
          far_count += static_cast<unsigned>(x > -INFINITY);
        }
        return;
      }
      const float weight = weights_.of(x);
      if (!weights_.keeps(weight)) return;
      if (bucket >= far) {
        ++far_count;
        far_units += to_units(weight);
        return;
      }
      atomicAdd(&s.counts[bucket], 1U);
      atomicAdd(&s.units[bucket], to_units(weight));
    });
    if (far_count == 0) return;
    atomicAdd(&s.counts[kBuckets - 1], far_count);
    atomicAdd(&s.units[kBuckets - 1], static_cast<unsigned long long>(far_units));
  }

  /// A warp: the bucket that top-k ends in, or else top-p; and how many tokens lie up to it.
  __device__ void find_last_bucket() const {
    constexpr int kPerLane = kBuckets / 32;
    Shared& s = shared();
    const int lane = static_cast<int>(threadIdx.x);
    const bool by_count = has_top_k();
    const auto measure = [&](int b) { return by_count ? s.counts[b] : s.units[b]; };
    unsigned long long mine = 0;
    unsigned long long units = 0;
    for (int b = lane * kPerLane; b < (lane + 1) * kPerLane; ++b) {
      mine += measure(b);
      units += s.units[b];
    }
    for (int d = 16; d > 0; d /= 2) units += __shfl_xor_sync(~0U, units, d);
    unsigned long long upto = mine;
    for (int d = 1; d < 32; d *= 2) {
      const unsigned long long lower = __shfl_up_sync(~0U, upto, d);
      if (lane >= d) upto += lower;
    }
    auto target = static_cast<unsigned long long>(how_.top_k);
    if (!by_count)
      target = how_.top_p < 1 ? static_cast<unsigned long long>(ceil(
                                    static_cast<double>(how_.top_p) * static_cast<double>(units)))
                              : ~0ULL;
    int last = kBuckets - 1;
    unsigned long long sum = upto - mine;
    for (int b = lane * kPerLane; b < (lane + 1) * kPerLane; ++b) {
      sum += measure(b);
      if (sum >= target) {
        last = b;
        break;
      }
    }
    last = static_cast<int>(__reduce_min_sync(~0U, static_cast<unsigned>(last)));
    unsigned count = 0;
    for (int b = lane; b <= last; b += 32) count += s.counts[b];
    count = __reduce_add_sync(~0U, count);
    if (lane != 0) return;
    s.total = units;
    s.last_bucket = last;
    s.num_expected = static_cast<int>(count);
  }

  /// Of the weights that are left.
  __device__ std::uint64_t total() const {
    Shared& s = shared();
    if (threadIdx.x == 0) s.sum = 0;
    __syncthreads();
    unsigned long long mine = 0;
    for_mine([&](int i, int) { mine += s.weight[i]; });
    for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(~0U, mine, d);
    if (threadIdx.x % 32 == 0 && mine != 0) atomicAdd(&s.sum, mine);
    __syncthreads();
    return s.sum;
  }

  const float* logits_;
  int vocab_;
  SamplingRow how_;
  RowWeights weights_;
};

}  // namespace minisgl::kernels::gpu
