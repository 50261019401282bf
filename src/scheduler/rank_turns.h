// How the schedulers of several ranks come to the same decisions.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/batch.h"
#include "engine/executor.h"
#include "scheduler/rank_messages.h"

namespace minisgl {

/// Every rank has a scheduler of its own. Its decisions follow from what it takes in at each turn
/// of its loop, and from the tokens, which are the same on all ranks. So rank 0 sends the others,
/// at the beginning of each turn, all that it takes in: requests, aborts, the end.
///
/// Members are called by the scheduler's thread, in the same order on all ranks. Throws Error
/// naming a rank that is gone or does not answer in time.
class RankTurns {
 public:
  struct Options {
    /// On the ranks but the first; may be empty if no request has a constraint.
    MakeConstraint make_constraint = {};
    /// After so long without work rank 0 calls the roll. Less than the host group's timeout.
    std::chrono::milliseconds idle_interval{2'000};
    /// Compare the batches of all steps over the ranks: a message each way a step.
#ifdef NDEBUG
    bool compare_batches = false;
#else
    bool compare_batches = true;
#endif
  };

  RankTurns(HostGroup& host, Options options) : host_(host), options_(std::move(options)) {}

  bool is_first() const { return host_.rank() == 0; }
  std::chrono::milliseconds idle_interval() const { return options_.idle_interval; }

  /// Throws Error showing both unless all ranks say the same `settings`; returns rank 0's `seed`.
  std::uint64_t agree(const std::string& settings, std::uint64_t seed);

  /// Sends `turn` of rank 0, which keeps it, also when this throws; of the others it is replaced.
  /// With a roll call it returns when all have answered.
  void share(RankTurn& turn);

  /// Throws Error that shows the batches of two ranks if they differ in what is computed or drawn.
  /// Nothing unless batches are compared.
  void compare(const Batch& batch);

 private:
  HostGroup& host_;
  Options options_;
  std::int64_t num_steps_ = 0;
};

/// All that the decisions of a scheduler depend on besides its messages.
std::string describe(const ExecutorLimits& limits, const SchedulerConfig& config);

/// What decides about a step's result, for people: rows, tokens and samples.
std::string describe(const Batch& batch);

}  // namespace minisgl
