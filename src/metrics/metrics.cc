#include "metrics/metrics.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace minisgl::metrics {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<std::uint64_t>[]>(bounds_.size() + 1)) {
  check(!bounds_.empty(), "a histogram needs at least one bound");
  check(std::adjacent_find(bounds_.begin(), bounds_.end(), std::greater_equal<>()) == bounds_.end(),
        "the bounds of a histogram must ascend");
}

void Histogram::observe(double value, std::uint64_t times) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(times, std::memory_order_relaxed);
  sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot snapshot;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i <= bounds_.size(); ++i) {
    sum += counts_[i].load(std::memory_order_relaxed);
    snapshot.cumulative.push_back(sum);
  }
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

std::vector<double> bounds_1_2_5(double max) {
  std::vector<double> bounds;
  for (double power = 1;; power *= 10) {
    for (const double mantissa : {1.0, 2.0, 5.0}) {
      if (mantissa * power > max) return bounds;
      bounds.push_back(mantissa * power);
    }
  }
}

}  // namespace minisgl::metrics
