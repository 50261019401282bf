// Decides, step after step, which tokens of which requests are computed.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/logprobs.h"
#include "core/request.h"
#include "engine/executor.h"

namespace minisgl {

class RankTurns;

struct SchedulerConfig {
  std::int32_t prefill_budget_tokens = 8192;  ///< prompt tokens of a step; longer are chunked
  std::string prefix_cache = "radix";         ///< or "naive"
  bool overlap = true;                        ///< plan step i + 1 while step i runs
  std::vector<TokenId> eos_ids = {};          ///< end an answer, unless it ignores them
  bool check_integrity = true;                ///< verify the ledgers when idle
  /// From which requests without a seed of their own get one, each another; a number from the
  /// system when unset. Ranks of one group need the same.
  std::optional<std::uint64_t> seed = std::nullopt;
  /// The schedulers of the other ranks, if there are any; it must outlive this one. Only rank 0's
  /// is asked for anything: submit(), abort(), flush_cache() and stop() of the others do nothing.
  RankTurns* ranks = nullptr;
};

/// A prompt on its way in.
struct NewRequest {
  RequestId id;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  /// Required by a sampling.response_format other than text, and allowed without.
  std::unique_ptr<TokenConstraint> constraint = nullptr;
  /// What whoever makes the constraint on another rank has to know besides `sampling`.
  std::int32_t constraint_start = 0;
};

/// When things happened to a request; zero (time_point{}) what did not happen yet. For metrics: no
/// decision is made from them.
struct RequestTimes {
  using Time = std::chrono::steady_clock::time_point;
  Time arrival;      ///< it was received by the scheduler's thread
  Time scheduled;    ///< its first step was launched
  Time first_token;  ///< collected
  Time last_token;   ///< the newest so far
};

/// What happened to a request in a step. A request's last event has a finish reason; after it there
/// are no more.
struct TokenEvent {
  RequestId request;
  bool has_token = false;  ///< false: only the finish counts (abort, error, max_tokens 0)
  TokenId token = 0;       ///< the end-of-sequence token included
  FinishReason finish = FinishReason::kNone;
  std::int32_t cached_tokens = 0;  ///< prompt tokens taken from the prefix cache
  std::string error = {};          ///< for kError
  /// Why kStop: the token ended the answer (it is an end-of-sequence or stop token); false: the
  /// constraint said so, and the token is part of the answer.
  bool is_end_token = false;
  /// Of `token`, if sampling.num_logprobs asks for it.
  std::optional<PositionLogprobs> logprobs = std::nullopt;
  /// Of the prompt's second token and those after it, in the event after its last chunk, if
  /// sampling.prompt_logprobs asks for it.
  std::vector<PositionLogprobs> prompt_logprobs = {};
  RequestTimes times = {};
};

/// Counters for logs, metrics and tests; a snapshot.
struct SchedulerStats {
  /// Running requests are those that hold memory. One stays among them after its last event, until
  /// no step in flight reads its pages: with none running, every page is free or cached.
  std::int64_t running = 0, waiting = 0;
  std::int64_t free_pages = 0, cached_pages = 0, locked_pages = 0, total_pages = 0;
  std::int64_t steps = 0, prompt_tokens = 0, cached_prompt_tokens = 0, generated_tokens = 0;
  /// Of `steps`: with decode rows only, with prompt tokens only, with both.
  std::int64_t decode_steps = 0, prefill_steps = 0, mixed_steps = 0;
  /// Steps by their number of rows: up to 1, 2, 4, 8, ..., 1024, and more. step_rows is the sum.
  std::array<std::int64_t, 12> steps_by_rows = {};
  std::int64_t step_rows = 0;
  /// Requests that were answered, by their finish reason. Those refused before they got a row count
  /// as errors.
  std::int64_t stopped = 0, length_reached = 0, aborted = 0, failed = 0;
  std::int64_t preempted = 0;  ///< requests put back: none, as admission reserves the whole answer
  std::int64_t admitted = 0;   ///< requests that got a row
  double queue_seconds = 0;    ///< from arrival to the first step, over all that were admitted
};

/// One rank's scheduler.
///
/// A step holds all decoding rows and, beside them, prompt tokens within the prefill budget:
/// decoding never waits for prompts, prompts never for decoding. Prompts are served first come
/// first served. A request is admitted when the pool has room for its whole answer, so it is never
/// put back. With overlap the next step is planned and launched before the tokens of the last one
/// are known; what it computes for a request that turns out to have ended is dropped, so the
/// answers are the same as without. Every decision follows from the order of submit() and abort()
/// and from the tokens: ranks that see the same make the same steps (RankTurns).
///
/// submit(), abort(), flush_cache(), validate(), stats() and stop() may be called by any thread,
/// also from the sink; run(), step() and check_integrity() by one. Events are delivered on that
/// thread, in order.
///
/// Source: mini-sglang scheduler/scheduler.py; Yu et al. 2022 (Orca), section 4.
class Scheduler {
 public:
  using Sink = std::function<void(std::span<const TokenEvent>)>;

  /// `executor` must outlive the scheduler. Throws Error naming the limit or option that makes no
  /// sense.
  Scheduler(Executor& executor, SchedulerConfig config, Sink sink);
  ~Scheduler();

  /// Throws RequestError unless `request` can be served at all: empty prompt, ids outside the
  /// vocabulary, prompt not shorter than the context (code "context_length_exceeded") or than what
  /// the pool holds, bad sampling values.
  void validate(const NewRequest& request) const;

  /// Queues a request (validate() is the caller's duty, but a bad one only gets an error event).
  /// max_tokens is lowered to what context and pool leave. Throws Error if the id is that of a
  /// request which has not ended. After stop() it gets an abort event, after a fault an error
  /// event; once run() has returned, on the calling thread.
  void submit(NewRequest request);

  /// Ends a request, waiting, prefilling or decoding; unknown ids are ignored. Its event has
  /// kAbort.
  void abort(RequestId id);

  /// Forgets every cached prefix that no request uses, soon.
  void flush_cache();

  /// The loop; returns after stop() once what is in flight was collected and everything left was
  /// ended with an abort event. Throws what the executor threw, after an error event for all.
  void run();
  void stop();

  /// One turn of the loop, for callers without a thread (tests, offline use): plans, launches and
  /// collects; false when there was nothing to do. Throws as run() does.
  bool step();
  /// Whether the loop has ended, as stop() of this scheduler or of rank 0's asked for. Called by
  /// the thread that runs it.
  bool stopped() const;

  SchedulerStats stats() const;

  /// Throws Error unless every page has one owner (the free list, the prefix cache or one request)
  /// and, when there is no request, nothing is locked and no row is taken. Between steps; O(pool).
  void check_integrity() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
