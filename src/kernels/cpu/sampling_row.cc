#include "kernels/cpu/sampling_row.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/table.h"

namespace minisgl::kernels::cpu {
namespace {

/// Tokens are sorted into buckets by their distance from the maximum, in steps of 1/16 nat; the
/// bucket in which a filter's border falls is then looked at token by token. The last bucket takes
/// all that is further away.
constexpr int kBuckets = 1024;
constexpr float kBucketsPerNat = 16.0F;

constexpr std::int64_t kBlock = 1024;  // tokens that are summed at once

/// In 16 sums, so that it can be done with vectors, in one order on every machine.
double sum(const float* weights, std::int64_t n) {
  double sums[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) sums[j] += weights[i + j];
  for (int j = 0; i < n; ++i, ++j) sums[j] += weights[i];
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

double total_of(std::span<const float> weights) {
  double total = 0;
  const auto n = static_cast<std::int64_t>(weights.size());
  for (std::int64_t at = 0; at < n; at += kBlock)
    total += sum(&weights[at], std::min(kBlock, n - at));
  return total;
}

struct MoreLikely {
  std::span<const float> logits;
  bool operator()(std::int32_t a, std::int32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

/// A row while it is filtered. A token that was dropped has weight 0.
class Filter {
 public:
  Filter(std::span<const float> logits, float max, float temperature,
         const SamplingScratch& scratch)
      : logits_(logits),
        weights_(scratch.weights),
        candidates_(scratch.candidates),
        max_(max),
        buckets_per_logit_(kBucketsPerNat / temperature) {}

  /// Keeps the k greatest and what ties with the last of them.
  void keep_top_k(std::int64_t k) {
    std::int64_t counts[kBuckets] = {};
    for_each([&](std::int64_t id) { ++counts[bucket(id)]; });
    std::int64_t above = 0;
    int border = 0;
    while (border < kBuckets && above + counts[border] < k) above += counts[border++];
    if (border == kBuckets) return;  // no more than k are left
    const std::span<std::int32_t> inside = gather(border);
    const auto kth = inside.begin() + (k - above - 1);
    std::nth_element(inside.begin(), kth, inside.end(), MoreLikely{logits_});
    drop_below(logits_[*kth], static_cast<std::int32_t>(logits_.size()));
  }

  /// Keeps the fewest of the greatest (of equals: the lowest ids) whose sum is at least
  /// top_p * total.
  void keep_top_p(double top_p) {
    const double target = top_p * total_of(weights_);
    double sums[kBuckets] = {};
    for_each([&](std::int64_t id) { sums[bucket(id)] += weights_[id]; });
    double above = 0;
    int border = 0;
    while (border < kBuckets && above + sums[border] < target) above += sums[border++];
    if (border == kBuckets) return;  // the sum differs from the total by rounding
    const std::int32_t last = last_needed(gather(border), target - above);
    if (last >= 0) drop_below(logits_[last], last);
  }

 private:
  template <class F>
  void for_each(const F& f) const {
    const auto n = static_cast<std::int64_t>(weights_.size());
    for (std::int64_t id = 0; id < n; ++id)
      if (weights_[id] > 0) f(id);
  }

  int bucket(std::int64_t id) const {
    const float at = (max_ - logits_[id]) * buckets_per_logit_;
    return static_cast<int>(std::min(at, static_cast<float>(kBuckets - 1)));
  }

  /// The tokens of a bucket that are left, in order of their ids.
  std::span<std::int32_t> gather(int wanted) const {
    std::size_t count = 0;
    for_each([&](std::int64_t id) {
      if (bucket(id) == wanted) candidates_[count++] = static_cast<std::int32_t>(id);
    });
    return candidates_.first(count);
  }

  /// The last of the most likely tokens that are needed for a sum of `target`, by halving; -1 if
  /// there are none.
  std::int32_t last_needed(std::span<std::int32_t> ids, double target) const {
    while (ids.size() > 1) {
      const std::size_t half = ids.size() / 2;
      std::nth_element(ids.begin(), ids.begin() + half, ids.end(), MoreLikely{logits_});
      double upper = 0;
      for (const std::int32_t id : ids.first(half)) upper += weights_[id];
      if (upper >= target) {
        ids = ids.first(half);
      } else {
        target -= upper;
        ids = ids.subspan(half);
      }
    }
    return ids.empty() ? -1 : ids[0];
  }

  /// Keeps what is above `logit`, and of those equal to it the ids up to `last_id`.
  void drop_below(float logit, std::int32_t last_id) {
    const auto n = static_cast<std::int64_t>(weights_.size());
    for (std::int64_t id = 0; id < n; ++id) {
      const bool keep = logits_[id] > logit || (logits_[id] == logit && id <= last_id);
      weights_[id] = keep ? weights_[id] : 0.0F;
    }
  }

  std::span<const float> logits_;
  std::span<float> weights_;
  std::span<std::int32_t> candidates_;
  float max_;
  float buckets_per_logit_;
};

}  // namespace

bool is_greedy(const SamplingRow& row) {
  return !(row.temperature >= kGreedyTemperature) || row.top_k == 1 || row.top_p <= 0;
}

FilteredRow filtered_probabilities(std::span<const float> logits, const SamplingRow& row,
                                   const SamplingScratch& scratch) {
  const auto vocab = static_cast<std::int64_t>(logits.size());
  const CpuKernels& kernels = cpu_kernels();
  const LogitScan scan = kernels.scan_logits(logits.data(), vocab);
  if (is_greedy(row) || scan.has_nan || !std::isfinite(scan.max)) {
    std::fill(scratch.weights.begin(), scratch.weights.end(), 0.0F);
    scratch.weights[scan.argmax] = 1.0F;
    return {scratch.weights, 1.0};
  }
  kernels.softmax_weights(logits.data(), vocab, scan.max, row.temperature,
                          std::min(row.min_p, 1.0F), scratch.weights.data());
  Filter filter(logits, scan.max, row.temperature, scratch);
  if (row.top_k > 0 && row.top_k < vocab) filter.keep_top_k(row.top_k);
  if (row.top_p < 1.0F) filter.keep_top_p(row.top_p);
  return {scratch.weights, total_of(scratch.weights)};
}

std::int32_t draw(const FilteredRow& row, double uniform) {
  const auto n = static_cast<std::int64_t>(row.weights.size());
  double left = uniform * row.total;
  std::int64_t last = 0;  // the last token with any weight, should rounding carry us past the end
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(n, begin + kBlock);
    const double block = sum(&row.weights[begin], end - begin);
    if (block <= left && block > 0 && end < n) {
      left -= block;
      last = begin;
      continue;
    }
    for (std::int64_t id = begin; id < end; ++id) {
      const double weight = row.weights[id];
      if (weight == 0) continue;
      last = id;
      if (left < weight) return static_cast<std::int32_t>(id);
      left -= weight;
    }
  }
  while (row.weights[last] == 0) ++last;
  return static_cast<std::int32_t>(last);
}

}  // namespace minisgl::kernels::cpu
