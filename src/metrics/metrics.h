// Numbers that operators watch: counted without locks, read at any time.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace minisgl::metrics {

/// Only grows. Thread-safe; add() is one atomic addition.
class Counter {
 public:
  void add(std::uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// How often values fell between given bounds. Thread-safe and without locks: observe() is a binary
/// search and two atomic additions (some 20 ns), so it may stand in the path of every token.
class Histogram {
 public:
  struct Snapshot {
    /// Values up to and including bounds()[i]; the last one (no bound): all of them.
    std::vector<std::uint64_t> cumulative;
    double sum = 0;  ///< may be ahead of the counts by what is observed meanwhile
  };

  /// `bounds` ascend strictly; there is at least one. Throws Error otherwise.
  explicit Histogram(std::vector<double> bounds);

  /// As if observe(value) was called `times` times.
  void observe(double value, std::uint64_t times = 1);

  const std::vector<double>& bounds() const { return bounds_; }
  Snapshot snapshot() const;

 private:
  const std::vector<double> bounds_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> counts_;  // [bounds + 1]
  std::atomic<double> sum_{0};
};

/// 1, 2, 5, 10, 20, ... up to `max`, with nothing between: bounds for counts of tokens.
std::vector<double> bounds_1_2_5(double max);

}  // namespace minisgl::metrics
