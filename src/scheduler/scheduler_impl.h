// The scheduler's ledgers and the parts of its loop; for scheduler.cc alone.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/cache_manager.h"
#include "scheduler/decode_set.h"
#include "scheduler/inbox.h"
#include "scheduler/prefill_queue.h"
#include "scheduler/rank_turns.h"
#include "scheduler/request_check.h"
#include "scheduler/row_table.h"
#include "scheduler/scheduler.h"
#include "scheduler/seeds.h"
#include "scheduler/step.h"

namespace minisgl {

class Scheduler::Impl {
 public:
  Impl(Executor& executor, SchedulerConfig config, Sink sink)
      : executor_(executor),
        limits_(checked_limits(executor.limits())),
        config_(checked_config(std::move(config))),
        sink_(std::move(sink)),
        room_tokens_(room_tokens(limits_)),
        seed_(config_.seed ? *config_.seed : random_seed()),
        cache_({.num_pages = limits_.num_pages,
                .page_size = limits_.page_size,
                .max_rows = limits_.max_rows,
                .max_seq_len = room_tokens_,
                .prefix_cache = config_.prefix_cache}),
        rows_(limits_.max_rows) {
    if (config_.ranks != nullptr) seed_ = config_.ranks->agree(describe(limits_, config_), seed_);
    publish();
  }

  ~Impl() { abandon_step(); }

  void validate(const NewRequest& request) const { check_request(request, limits_); }
  void submit(NewRequest request);
  void abort(RequestId id) { inbox_.push(AbortRequest{id}); }
  void flush_cache() { inbox_.push(FlushRequest{}); }
  void stop() { inbox_.stop(); }
  bool stopped() const { return stopping_; }
  void run();
  bool step();
  SchedulerStats stats() const;
  void check_integrity() const;

 private:
  bool turn();
  bool take_messages();
  void drain();
  bool receive();
  void receive(NewRequest&& request);
  void receive(AbortRequest abort);
  void receive(FlushRequest flush);

  Step* launch_next();
  void fill_edits(Step& step);
  void sample_waiting(Step& step);
  void collect(Step& step);
  void take_token(Sequence& sequence, TokenId token, PositionLogprobs* logprobs);
  void end(Sequence& sequence, FinishReason reason, const char* error = "");
  void release(Sequence& sequence);

  void idle();
  void shut_down();
  void abandon_step();
  void fail(const char* what);
  void deliver();
  void publish();

  Executor& executor_;
  const ExecutorLimits limits_;
  const SchedulerConfig config_;
  const Sink sink_;
  const std::int32_t room_tokens_;
  std::uint64_t seed_;
  Inbox inbox_;

  // Everything below belongs to the thread that runs the loop.
  CacheManager cache_;
  RowTable rows_;
  PrefillQueue queue_;
  DecodeSet decoding_;
  std::map<RequestId, Sequence> sequences_;  // all that were not released
  std::int64_t num_arrivals_ = 0;
  std::int64_t num_running_ = 0;  // admitted and not released: their pages are taken
  std::array<Step, 2> steps_;
  Step* in_flight_ = nullptr;              // launched, not collected (only with overlap)
  std::deque<SchedulerMessage> messages_;  // drained, not handled
  bool stopping_ = false;                  // this turn is the last
  std::vector<TokenEvent> events_;
  std::vector<Sequence*> decode_rows_, extend_rows_;  // scratch of launch_next()
  std::vector<Request*> requests_;
  SchedulerStats counters_;

  mutable std::mutex mutex_;  // guards what follows
  SchedulerStats published_;
  std::string failure_;  // what the executor threw
};

}  // namespace minisgl
