// What the scheduler needs of an engine.

#pragma once

#include <cstdint>
#include <span>

#include "core/batch.h"

namespace minisgl {

/// Sizes that the scheduler plans with.
struct ExecutorLimits {
  std::int32_t num_pages = 0;        ///< without the dummy page
  std::int32_t page_size = 1;        ///< tokens
  std::int32_t max_rows = 0;         ///< requests that run at once
  std::int32_t max_seq_len = 0;      ///< tokens of prompt and answer together
  std::int32_t max_step_tokens = 0;  ///< tokens of one step
  std::int32_t vocab_size = 0;
  TokenLoc dummy_loc() const { return num_pages * page_size; }
};

/// Runs steps, in order. The scheduler's tests put a cost model in its place.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;

  /// Enqueues a step and returns without waiting for it. At most two steps are in flight. `batch`
  /// must stay where it is until collect(). Decode rows continue from the token that the last
  /// launched step drew for their row.
  virtual void launch(Batch& batch) = 0;

  /// Draws the tokens of a launched step with Batch::sampling_waits, after the step before it was
  /// collected and before the next one is launched. Enqueues and returns.
  virtual void sample(Batch& batch) = 0;

  /// Blocks until the step's tokens are on the host: one for each of batch.samples, in order; valid
  /// until the next launch(). Fills batch.logprobs and batch.score_logprobs. Throws what the step
  /// threw: the engine is then unusable.
  virtual std::span<const TokenId> collect(Batch& batch) = 0;
};

}  // namespace minisgl
