// How long steps take, by what they compute.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "engine/step_work.h"

namespace minisgl {

/// What kind of step it was.
struct StepKind {
  std::int32_t decode_rows = 0;  ///< 0: a step with tokens of prompts
  bool graph = false;            ///< replayed
};

/// Steps of one kind. A step's time is that from the end of the one before it, or from its launch
/// if that is later: the times of all steps add up to the time in which the engine was busy.
struct StepGroup {
  std::int64_t steps = 0;
  std::int64_t rows = 0;  ///< of decode steps, all together
  double seconds = 0;
  StepWork work;
};

/// Steps by what they computed. Decode steps of n rows are in entry i with 2^(i-1) < n <= 2^i; the
/// last one takes all larger ones.
struct StepGroups {
  static constexpr std::size_t kSizes = 16;
  StepGroup prompts;
  std::array<StepGroup, kSizes> replayed, eager;

  StepGroup& of(StepKind kind) {
    if (kind.decode_rows <= 0) return prompts;
    const auto size =
        static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(kind.decode_rows - 1)));
    return (kind.graph ? replayed : eager)[std::min(size, kSizes - 1)];
  }
};

/// Adds up steps. record() is called by one thread, groups() by any.
class StepGroupMeter {
 public:
  using Clock = std::chrono::steady_clock;

  /// A step was launched at `begin` and known to be done at `end`. Steps are given in the order in
  /// which they ended; they may overlap.
  void record(StepKind kind, const StepWork& work, Clock::time_point begin, Clock::time_point end) {
    const std::lock_guard lock(mutex_);
    StepGroup& group = groups_.of(kind);
    ++group.steps;
    group.rows += kind.decode_rows;
    group.seconds += std::chrono::duration<double>(end - std::max(begin, last_end_)).count();
    group.work.flops += work.flops;
    group.work.read_bytes += work.read_bytes;
    group.work.write_bytes += work.write_bytes;
    last_end_ = end;
  }

  StepGroups groups() const {
    const std::lock_guard lock(mutex_);
    return groups_;
  }

 private:
  mutable std::mutex mutex_;  // guards all below; held for some 50 ns once a step
  StepGroups groups_;
  Clock::time_point last_end_{};
};

}  // namespace minisgl
