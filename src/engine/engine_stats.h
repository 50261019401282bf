// How much an engine has done.

#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>

#include "engine/graph_runner.h"
#include "engine/step_work.h"

namespace minisgl {

/// A snapshot; all numbers grow, except the two rates.
struct EngineStats {
  StepWork work;            ///< of all steps, estimated
  double busy_seconds = 0;  ///< while at least one step was in flight
  /// Estimated work by busy second, of the last seconds of work; 0 before the first step.
  double flops_per_second = 0;
  double bytes_per_second = 0;  ///< read and written
  GraphStats graphs;
};

/// Adds up steps. record() is called by one thread, add_to() by any.
class StepMeter {
 public:
  using Clock = std::chrono::steady_clock;

  /// A step was launched at `begin` and known to be done at `end`. Steps are given in the order in
  /// which they ended; they may overlap.
  void record(const StepWork& work, Clock::time_point begin, Clock::time_point end) {
    constexpr double kMemorySeconds = 5;  // of the rates
    const std::lock_guard lock(mutex_);
    const std::chrono::duration<double> busy = end - std::max(begin, last_end_);
    last_end_ = end;
    const double keep = std::exp(-busy.count() / kMemorySeconds);
    total_.flops += work.flops;
    total_.read_bytes += work.read_bytes;
    total_.write_bytes += work.write_bytes;
    busy_seconds_ += busy.count();
    recent_flops_ = recent_flops_ * keep + work.flops;
    recent_bytes_ = recent_bytes_ * keep + work.read_bytes + work.write_bytes;
    recent_seconds_ = recent_seconds_ * keep + busy.count();
  }

  void add_to(EngineStats& stats) const {
    const std::lock_guard lock(mutex_);
    stats.work = total_;
    stats.busy_seconds = busy_seconds_;
    if (recent_seconds_ <= 0) return;
    stats.flops_per_second = recent_flops_ / recent_seconds_;
    stats.bytes_per_second = recent_bytes_ / recent_seconds_;
  }

 private:
  mutable std::mutex mutex_;  // guards all below; held for some 50 ns once a step
  StepWork total_;
  double busy_seconds_ = 0;
  double recent_flops_ = 0, recent_bytes_ = 0, recent_seconds_ = 0;
  Clock::time_point last_end_{};
};

}  // namespace minisgl
