// Decides, step after step, which tokens of which requests are computed.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/request.h"
#include "engine/executor.h"

namespace minisgl {

struct SchedulerConfig {
  std::int32_t prefill_budget_tokens = 8192;  ///< prompt tokens of one step; longer prompts are chunked
  std::string prefix_cache = "radix";         ///< or "naive"
  bool overlap = true;                        ///< plan step i + 1 while step i runs
  std::vector<TokenId> eos_ids;               ///< ascending
  bool check_integrity = true;                ///< verify the ledgers whenever idle
};

/// A prompt on its way in.
struct NewRequest {
  RequestId id;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};

/// What happened to a request in a step. A request's last event has a finish reason; after it there
/// are no more.
struct TokenEvent {
  RequestId request;
  bool has_token = false;  ///< false: only the finish counts (abort, error, max_tokens 0)
  TokenId token = 0;       ///< the end-of-sequence token included
  FinishReason finish = FinishReason::kNone;
  std::int32_t cached_tokens = 0;  ///< prompt tokens taken from the prefix cache
  std::string error;               ///< for kError
};

/// Counters for logs, metrics and tests; a snapshot.
struct SchedulerStats {
  std::int64_t running = 0, waiting = 0;
  std::int64_t free_pages = 0, cached_pages = 0, locked_pages = 0, total_pages = 0;
  std::int64_t steps = 0, prompt_tokens = 0, cached_prompt_tokens = 0, generated_tokens = 0;
};

/// One rank's scheduler. submit(), abort(), validate(), stats() and stop() may be called by any
/// thread, run() by one; events are delivered on run()'s thread, in order.
class Scheduler {
 public:
  using Sink = std::function<void(std::span<const TokenEvent>)>;

  Scheduler(Executor& executor, SchedulerConfig config, Sink sink);
  ~Scheduler();

  /// Throws RequestError unless `request` can be served at all: empty prompt, ids outside the
  /// vocabulary, prompt not shorter than the context (code "context_length_exceeded") or than what
  /// the pool holds, bad sampling values.
  void validate(const NewRequest& request) const;

  /// Queues a request (validate() is the caller's duty, but a bad one only gets an error event).
  /// Ids must be new. After stop() it gets an abort event.
  void submit(NewRequest request);

  /// Ends a request, waiting, prefilling or decoding; unknown ids are ignored. Its event has kAbort.
  void abort(RequestId id);

  /// The loop; returns after stop() once what is in flight was collected and everything left was
  /// ended with an abort event. Throws what the executor threw, after an error event for all.
  void run();
  void stop();

  /// One turn of the loop, for callers without a thread (tests, offline use): plans, launches and
  /// collects; false when there was nothing to do.
  bool step();

  SchedulerStats stats() const;

  /// Throws Error unless free + cached pages equal the pool, all locks are zero, every page has one
  /// owner. Only when idle.
  void check_integrity() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
