// A row with min-p, top-k or top-p: which tokens stay, exactly, and a draw from them.
//
// A row is read twice: once to see how far from the maximum what top-k or top-p may keep can lie, and
// once to copy that to a short list in shared memory, which all that follows looks at. Where the list
// is too short, all that follows looks at the row.
//
// Weights are exp((x - max) / temperature) as integers, in units of 2^-40: their sums do not depend
// on the order in which threads add them.

#pragma once

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/sampling.h"

namespace minisgl::kernels::gpu {

constexpr int kRowThreads = 512;

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

/// A row while it is filtered; a block works on it. All threads call each function alike.
class FilteredRow {
 public:
  __device__ FilteredRow(const float* logits, int vocab, const SamplingRow& how, float max)
      : values_(logits),
        size_(vocab),
        max_(max),
        temperature_(how.temperature),
        least_weight_(fminf(how.min_p, 1.0F)) {}

  /// Leaves the row for the list, if what top_k (0: off) or else top_p may keep finds room there.
  /// Before all else.
  __device__ void shorten(int top_k, float top_p) {
    __shared__ float values[kListSize];
    __shared__ int ids[kListSize];
    if (size_ > 1 << 18) return;  // last_bucket() could overflow
    const int last = last_bucket(top_k, top_p);
    if (last == kBuckets - 1) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = static_cast<int>(threadIdx.x); i < kListSize; i += kRowThreads)
      values[i] = -INFINITY;
    __syncthreads();
    // A warp's part of the row, in its order, to the warp's part of the list.
    const int each = (size_ + kRowWarps * 32 - 1) / (kRowWarps * 32) * 32;
    const int end = min(size_, (warp + 1) * each);
    int count = 0;
    for (int begin = warp * each; begin < end; begin += 32 * kAhead) {
      float x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int id = begin + 32 * i + lane;
        x[i] = id < end ? values_[id] : -INFINITY;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int id = begin + 32 * i + lane;
        const bool stays = kept(x[i], weight_of(x[i]), id) && bucket(x[i]) <= last;
        const unsigned all = __ballot_sync(~0U, stays);
        const int at = count + __popc(all & ((1U << lane) - 1));
        if (stays && at < kWarpList) {
          values[warp * kWarpList + at] = x[i];
          ids[warp * kWarpList + at] = id;
        }
        count += __popc(all);
      }
    }
    if (__syncthreads_or(static_cast<int>(count > kWarpList)) != 0) return;
    values_ = values;
    ids_ = ids;
    size_ = kListSize;
  }

  /// Keeps the k greatest and what ties with the last of them.
  __device__ void keep_top_k(int k) {
    const Border border =
        find_border(static_cast<std::uint64_t>(k), [](float, float) { return std::uint64_t{1}; });
    least_key_ = max(least_key_, border.key);
  }

  /// Keeps the fewest of the greatest (of equals: the lowest ids) whose sum is at least top_p of
  /// all that top-k has left.
  __device__ void keep_top_p(float top_p, bool after_top_k) {
    const auto weight = [](float, float w) { return to_units(w); };
    // What is not on the list counts as well, unless it was top-k that dropped it.
    const std::uint64_t all = after_top_k || ids_ == nullptr ? total(weight) : whole_row_;
    const std::uint64_t target = share_of(top_p, all);
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
    __shared__ int found;
    const int each = (size_ + kRowThreads - 1) / kRowThreads;
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
    if (found >= 0 && warp == 0) {
      const int id = locate_in_chunk(found, each, left_in_chunk, lane);
      __syncwarp();
      if (lane == 0) found = id;
    }
    __syncthreads();
    return ids_ == nullptr || found < 0 ? found : ids_[found];
  }

 private:
  /// The greatest key such that the measure of all from it upwards is the target or more.
  struct Border {
    std::uint32_t key;
    std::uint64_t above;  // measure of the greater keys
    std::uint64_t at;     // of this key
    std::uint64_t ties;   // tokens with this key
  };
  static constexpr int kBuckets = 256;
  static constexpr int kAhead = 8;  ///< loads in flight: a row is read from the L2
  static constexpr int kRowWarps = kRowThreads / 32;
  static constexpr int kWarpList = 160;  ///< places of a warp's part of the list
  static constexpr int kListSize = kRowWarps * kWarpList;

  __device__ static std::uint64_t share_of(float top_p, std::uint64_t all) {
    return static_cast<std::uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(all)));
  }

  struct Reached {
    int bucket;            // -1: none
    std::uint64_t before;  // sum of those before it
  };

  /// A warp: the first bucket with which `sum` and the buckets up to it reach the target.
  template <class Bucket>
  __device__ static Reached first_to_reach(std::uint64_t target, std::uint64_t sum,
                                           const Bucket& in_bucket) {
    constexpr int kEach = kBuckets / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    std::uint64_t mine = 0;
    for (int i = 0; i < kEach; ++i) mine += in_bucket(lane * kEach + i);
    std::uint64_t until = mine;
    for (int d = 1; d < 32; d *= 2) {
      const std::uint64_t lower = __shfl_up_sync(~0U, until, d);
      if (lane >= d) until += lower;
    }
    Reached found{-1, sum + until - mine};
    for (int i = 0; i < kEach && found.bucket < 0; ++i) {
      const std::uint64_t here = in_bucket(lane * kEach + i);
      if (here > 0 && found.before + here >= target) {
        found.bucket = lane * kEach + i;
      } else {
        found.before += here;
      }
    }
    const unsigned lanes = __ballot_sync(~0U, found.bucket >= 0);
    const int first = lanes == 0 ? 0 : __ffs(static_cast<int>(lanes)) - 1;
    return {__shfl_sync(~0U, found.bucket, first), __shfl_sync(~0U, found.before, first)};
  }

  /// The last bucket of which top_k, or else top_p, may keep something; also finds whole_row_ for
  /// top_p. Tokens are counted in their buckets, for top_p with their units: these in three parts of
  /// 14 bits, because shared memory adds 32 bits at once.
  __device__ int last_bucket(int top_k, float top_p) {
    __shared__ unsigned parts[3][kBuckets];
    __shared__ unsigned long long tail;
    __shared__ unsigned long long whole;
    __shared__ int chosen;
    const bool by_count = top_k > 0;
    if (threadIdx.x < kBuckets)
      for (auto& part : parts) part[threadIdx.x] = 0;
    if (threadIdx.x == 0) tail = 0;
    __syncthreads();
    std::uint64_t far = 0;  // the last bucket, in which most are
    for_each([&](float x, float weight) {
      const int b = bucket(x);
      const std::uint64_t units = by_count ? 1 : to_units(weight);
      if (b == kBuckets - 1) {
        far += units;
        return;
      }
      atomicAdd(&parts[0][b], static_cast<unsigned>(units & 0x3FFF));
      if (by_count) return;
      atomicAdd(&parts[1][b], static_cast<unsigned>((units >> 14) & 0x3FFF));
      atomicAdd(&parts[2][b], static_cast<unsigned>(units >> 28));
    });
    for (int d = 16; d > 0; d /= 2) far += __shfl_xor_sync(~0U, far, d);
    if (threadIdx.x % 32 == 0) atomicAdd(&tail, static_cast<unsigned long long>(far));
    __syncthreads();
    if (threadIdx.x < 32) {
      const auto in_bucket = [&](int b) {
        return parts[0][b] + (std::uint64_t{parts[1][b]} << 14) +
               (std::uint64_t{parts[2][b]} << 28);
      };
      std::uint64_t sum = 0;
      for (int b = static_cast<int>(threadIdx.x); b < kBuckets; b += 32) sum += in_bucket(b);
      for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0U, sum, d);
      sum += tail;
      const std::uint64_t target =
          by_count ? static_cast<std::uint64_t>(top_k) : share_of(top_p, sum);
      const Reached reached = first_to_reach(target, 0, in_bucket);
      if (threadIdx.x == 0) {
        whole = sum;
        chosen = reached.bucket < 0 ? kBuckets - 1 : reached.bucket;
      }
    }
    __syncthreads();
    whole_row_ = whole;
    return chosen;
  }

  __device__ static std::uint64_t to_units(float weight) {
    return static_cast<std::uint64_t>(weight * 0x1p40F);
  }
  __device__ float weight_of(float x) const { return expf((x - max_) / temperature_); }
  __device__ bool kept(float x, float weight, int id) const {
    const std::uint32_t key = key_of(x);
    return weight > 0 && weight >= least_weight_ &&
           (key > least_key_ || (key == least_key_ && id <= last_tie_));
  }
  __device__ std::uint64_t units_at(int id) const {
    if (id >= size_) return 0;
    const float x = values_[id];
    const float weight = weight_of(x);
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
    for (int begin = static_cast<int>(threadIdx.x); begin < size_; begin += kAhead * kRowThreads) {
      float x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int id = begin + i * kRowThreads;
        x[i] = id < size_ ? values_[id] : -INFINITY;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float weight = weight_of(x[i]);  // 0 beyond the end
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

  /// Five looks at the row: buckets by the distance from the maximum, in steps of 1/16 nat, so that
  /// the tokens spread over many of them; then the bits of the key, eight at a time, of what is in
  /// the border's bucket. {0, 0, 0, 0} when all together do not reach the target.
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
        const int distance = bucket(x);
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
      if (threadIdx.x < 32) {
        const Reached reached =
            first_to_reach(target, above, [&](int b) { return std::uint64_t{sums[b]}; });
        if (threadIdx.x == 0) {
          chosen = reached.bucket;
          above_chosen = reached.before;
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

  __device__ int bucket(float x) const {
    constexpr float kBucketsPerNat = 16.0F;
    return static_cast<int>(
        fminf((max_ - x) / temperature_ * kBucketsPerNat, static_cast<float>(kBuckets - 1)));
  }

  __device__ std::uint64_t count_key(std::uint32_t key) const {
    return total([key](float x, float) { return key_of(x) == key ? std::uint64_t{1} : 0; });
  }

  /// The place of the nth token (from 1) that is kept and has this key.
  __device__ int nth_tie(std::uint32_t key, int n) const {
    int seen = 0;
    for (int begin = 0; begin < size_; begin += kRowThreads) {
      const int id = begin + static_cast<int>(threadIdx.x);
      const float x = id < size_ ? values_[id] : 0.0F;
      const bool tie = id < size_ && key_of(x) == key && kept(x, weight_of(x), id);
      const int here = __syncthreads_count(static_cast<int>(tie));
      if (seen + here < n) {
        seen += here;
        continue;
      }
      __shared__ int found;
      if (threadIdx.x == 0) {
        for (int i = begin; i < size_; ++i) {
          if (key_of(values_[i]) != key || !kept(values_[i], weight_of(values_[i]), i)) continue;
          if (++seen < n) continue;
          found = i;
          break;
        }
      }
      __syncthreads();
      return found;
    }
    return size_;
  }

  const float* values_;       // of the row, or of the list
  const int* ids_ = nullptr;  // of the list; null: a value's place is its id
  int size_;
  float max_, temperature_, least_weight_;
  std::uint32_t least_key_ = 0;
  int last_tie_ = 0x7FFFFFFF;    // place of the last one that stays of the tokens with least_key_
  std::uint64_t whole_row_ = 0;  // units of all before top-p, if top-k is off
};

/// A draw after min-p, top-k and top-p, in this order. All threads of the block call it.
__device__ inline int draw_filtered(const float* logits, int vocab, const SamplingRow& how,
                                    float max, std::uint32_t bits) {
  FilteredRow row(logits, vocab, how, max);
  const bool top_k = how.top_k > 0 && how.top_k < vocab;
  if (top_k || how.top_p < 1) row.shorten(top_k ? how.top_k : 0, how.top_p);
  if (top_k) row.keep_top_k(how.top_k);
  if (how.top_p < 1) row.keep_top_p(how.top_p, top_k);
  return row.draw(bits);
}

}  // namespace minisgl::kernels::gpu
