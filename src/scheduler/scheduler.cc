#include "scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/log.h"
#include "core/request_faults.h"
#include "scheduler/count.h"
#include "scheduler/scheduler_impl.h"
#include "tensor/cuda/range.h"

namespace minisgl {
namespace {

/// The ledgers are verified only after a pause: a client that answers at once must not wait for it
/// (50 ms for a pool of a million pages, all cached).
constexpr std::chrono::milliseconds kIdleDelay{200};

}  // namespace

void Scheduler::Impl::submit(NewRequest request) {
  const RequestId id = request.id;
  if (inbox_.push(request)) return;
  TokenEvent event;
  event.request = id;
  event.finish = FinishReason::kAbort;
  {
    const std::lock_guard lock(mutex_);
    event.error = failure_;
  }
  if (!event.error.empty()) event.finish = FinishReason::kError;
  sink_({&event, 1});
}

void Scheduler::Impl::run() {
  for (;;) {
    while (step()) {
    }
    if (stopping_) return;
    if (config_.ranks != nullptr && !config_.ranks->is_first()) continue;  // step() waits
    if (inbox_.wait_for(kIdleDelay)) continue;
    idle();
    if (config_.ranks == nullptr) {
      inbox_.wait();
    } else {
      inbox_.wait_for(config_.ranks->idle_interval());
    }
  }
}

bool Scheduler::Impl::step() {
  {
    const std::lock_guard lock(mutex_);
    check(failure_.empty(), "the scheduler stopped after a fault: ", failure_);
  }
  try {
    return turn();
  } catch (const std::exception& e) {
    fail(e.what());
    throw;
  } catch (...) {
    fail("unknown fault");
    throw;
  }
}

bool Scheduler::Impl::turn() {
  if (stopping_ && config_.ranks != nullptr) return false;  // the others have ended
  const bool received = take_messages();
  if (stopping_) {
    shut_down();
    return false;
  }
  if (received) publish();  // what left the inbox is counted while the step is computed
  Step* launched = launch_next();
  if (launched != nullptr && !config_.overlap) {
    sample_waiting(*launched);
    collect(*launched);
    publish();
    deliver();
    return true;
  }
  Step* previous = std::exchange(in_flight_, launched);
  if (previous != nullptr) collect(*previous);
  if (launched != nullptr) sample_waiting(*launched);  // the step is computing: no time to lose
  publish();  // first: who has heard of its end finds it in the counters
  deliver();
  const bool worked = launched != nullptr || previous != nullptr;
  check(worked || queue_.empty(), "scheduler: ", queue_.size(),
        " requests wait, nothing runs, and the first does not fit");
  return worked || received;
}

// What this turn has to take in, on all ranks the same. stopping() is asked first: what was pushed
// before stop() is handled then.
bool Scheduler::Impl::take_messages() {
  if (config_.ranks == nullptr) {
    drain();
    const bool received = receive();
    stopping_ = inbox_.stopping();
    return received;
  }
  RankTurn turn;
  if (config_.ranks->is_first()) {
    turn.stopping = inbox_.stopping();
    turn.messages = inbox_.drain();
    turn.roll_call = turn.messages.empty() && in_flight_ == nullptr && sequences_.empty();
    turn.roll_call |= turn.stopping;  // none ends before all know
  }
  // They are ours whether or not the others hear of them: after a fault fail() answers them.
  const auto keep = [&] {
    for (SchedulerMessage& message : turn.messages) messages_.push_back(std::move(message));
  };
  try {
    config_.ranks->share(turn);
  } catch (...) {
    keep();
    throw;
  }
  stopping_ = turn.stopping;
  keep();
  return receive();
}

void Scheduler::Impl::drain() {
  for (SchedulerMessage& message : inbox_.drain()) messages_.push_back(std::move(message));
}

bool Scheduler::Impl::receive() {
  const bool received = !messages_.empty();
  while (!messages_.empty()) {
    SchedulerMessage message = std::move(messages_.front());
    messages_.pop_front();
    std::visit([this](auto& content) { receive(std::move(content)); }, message);
  }
  deliver();
  return received;
}

void Scheduler::Impl::receive(NewRequest&& request) {
  TokenEvent event;
  event.request = request.id;
  try {
    check_request(request, limits_);
    if (request.sampling.max_tokens == 0 && !request.sampling.prompt_logprobs)
      event.finish = FinishReason::kLength;
  } catch (const RequestError& e) {
    event.finish = FinishReason::kError;
    event.error = e.what();
  }
  if (event.finish != FinishReason::kNone) {
    count_finish(event.finish, counters_);
    inbox_.forget(event.request);
    events_.push_back(std::move(event));
    return;
  }
  Sequence& sequence = sequences_[request.id];
  sequence.arrival = num_arrivals_++;
  sequence.times.arrival = std::chrono::steady_clock::now();
  const std::uint64_t seed = mix_seed(seed_ + request.id.value);
  sequence.begin(std::move(request), room_tokens_, seed);
  sequence.make_edits(config_.eos_ids, limits_.vocab_size);
  queue_.push(sequence);
}

void Scheduler::Impl::receive(AbortRequest abort) {
  const auto found = sequences_.find(abort.id);
  if (found == sequences_.end() || found->second.ended) return;
  end(found->second, FinishReason::kAbort);
  if (found->second.steps_in_flight == 0) release(found->second);
}

void Scheduler::Impl::receive(FlushRequest /*flush*/) { cache_.flush(); }

// Plans a step from what is known without the tokens of the step in flight, and launches it.
// Nullptr when there is nothing to compute.
Step* Scheduler::Impl::launch_next() {
  const cuda::Range range("plan and launch");
  decode_rows_.clear();
  extend_rows_.clear();
  requests_.clear();
  decoding_.collect(decode_rows_);
  std::int64_t reserved_pages = 0;
  for (const Sequence* sequence : decode_rows_) {
    reserved_pages += cache_.pages_to_come(sequence->request);
  }
  if (const Sequence* started = queue_.started()) {
    reserved_pages += cache_.pages_to_come(started->request);
  }
  const auto room = limits_.max_step_tokens - static_cast<std::int64_t>(decode_rows_.size());
  const auto budget = std::min<std::int64_t>(config_.prefill_budget_tokens, room);
  queue_.schedule(budget, reserved_pages, cache_, rows_, extend_rows_);
  if (decode_rows_.empty() && extend_rows_.empty()) return nullptr;

  for (Sequence* sequence : decode_rows_) requests_.push_back(&sequence->request);
  for (Sequence* sequence : extend_rows_) {
    requests_.push_back(&sequence->request);
    if (sequence->request.cached_len != sequence->cached_tokens) continue;  // not its first chunk
    ++num_running_;
    sequence->times.scheduled = std::chrono::steady_clock::now();
    count_admission(sequence->times, counters_);
    counters_.prompt_tokens += sequence->request.prompt_len;
    counters_.cached_prompt_tokens += sequence->cached_tokens;
  }
  cache_.allocate(requests_);
  Step& step = in_flight_ == &steps_[0] ? steps_[1] : steps_[0];
  step.fill(decode_rows_, extend_rows_, cache_.page_table());
  count_step(step.batch, counters_);  // before the executor adds padding rows
  if (config_.ranks != nullptr) config_.ranks->compare(step.batch);
  if (!step.batch.sampling_waits) fill_edits(step);
  executor_.launch(step.batch);
  for (Sequence* sequence : step.sequences) {
    ++sequence->steps_in_flight;
    Request& request = sequence->request;
    request.complete_step();
    if (request.cached_len < request.prompt_len || sequence->ended) continue;
    if (request.can_decode()) {
      decoding_.add(*sequence);
    } else {  // its last token is in flight
      decoding_.remove(*sequence);
    }
  }
  return &step;
}

void Scheduler::Impl::fill_edits(Step& step) {
  for (Sequence* sequence : step.fill_edits(limits_.vocab_size))
    end(*sequence, FinishReason::kError, kNoTokenCanFollow);
}

// Nothing, unless the step's sampling waits.
void Scheduler::Impl::sample_waiting(Step& step) {
  if (!step.batch.sampling_waits) return;
  fill_edits(step);
  executor_.sample(step.batch);
}

void Scheduler::Impl::collect(Step& step) {
  const std::span<const TokenId> tokens = executor_.collect(step.batch);
  const std::vector<SampleRow>& samples = step.batch.samples;
  check(tokens.size() == samples.size(), "scheduler: ", samples.size(),
        " tokens expected of a step, ", tokens.size(), " came");
  std::size_t next = 0;
  PositionLogprobs* next_logprobs = step.batch.logprobs.data();
  PositionLogprobs* next_score = step.batch.score_logprobs.data();
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    Sequence& sequence = *step.sequences[i];
    --sequence.steps_in_flight;
    const bool sampled = next < samples.size() && samples[next].batch_row == static_cast<int>(i);
    const bool has_logprobs = sampled && samples[next].num_logprobs >= 0;
    PositionLogprobs* logprobs = has_logprobs ? next_logprobs++ : nullptr;
    const TokenId token = sampled ? tokens[next++] : -1;
    sequence.take_prompt_logprobs(step.batch.rows[i], next_score);
    if (!sequence.ended) {
      // The keys and values exist now: others may use them.
      if (static_cast<std::int32_t>(i) >= step.batch.num_decode) {
        cache_.cache_prefix(sequence.request, step.batch.rows[i].device_len);
      }
      if (sampled) take_token(sequence, token, logprobs);
    }
    // Not before no step in flight reads its row.
    if (sequence.ended && sequence.steps_in_flight == 0) release(sequence);
  }
}

void Scheduler::Impl::take_token(Sequence& sequence, TokenId token, PositionLogprobs* logprobs) {
  check(token >= 0 && token < limits_.vocab_size, "scheduler: token ", token, " of request ",
        sequence.request.id.value, " is outside the vocabulary of ", limits_.vocab_size, " ids");
  Request& request = sequence.request;
  const bool is_first = sequence.num_generated() == 0;
  if (request.sampling.max_tokens == 0) {  // only its prompt was of interest
    end(sequence, FinishReason::kLength);
    events_.back().prompt_logprobs = std::move(sequence.prompt_logprobs);
    return;
  }
  request.tokens.push_back(token);
  if (sequence.edits != nullptr) sequence.edits->add(token);
  ++counters_.generated_tokens;
  sequence.times.last_token = std::chrono::steady_clock::now();
  if (is_first) sequence.times.first_token = sequence.times.last_token;
  if (request.constraint != nullptr && !request.constraint->accept(token)) {
    end(sequence, FinishReason::kError, kTokenDoesNotFit);
    return;
  }
  const bool ends = sequence.is_end_token(token, config_.eos_ids);
  const FinishReason finish = sequence.finish_after_token(ends);
  if (finish != FinishReason::kNone) {
    end(sequence, finish);
  } else {
    events_.push_back(sequence.event(finish));
  }
  TokenEvent& event = events_.back();
  event.has_token = true;
  event.token = token;
  event.is_end_token = ends;
  if (logprobs != nullptr) event.logprobs = std::move(*logprobs);
  if (is_first) event.prompt_logprobs = std::move(sequence.prompt_logprobs);
}

// Sends the last event. The sequence takes part in no further step; its memory stays until
// release().
void Scheduler::Impl::end(Sequence& sequence, FinishReason reason, const char* error) {
  events_.push_back(sequence.event(reason));
  events_.back().error = error;
  count_finish(reason, counters_);
  sequence.ended = true;
  queue_.remove(sequence);
  decoding_.remove(sequence);
}

void Scheduler::Impl::release(Sequence& sequence) {
  const RequestId id = sequence.request.id;
  if (sequence.admitted()) {
    --num_running_;
    cache_.release(sequence.request);
    rows_.free(sequence.request.row);
  }
  sequences_.erase(id);
  inbox_.forget(id);
}

void Scheduler::Impl::idle() {
  log::debug("scheduler is idle: {} pages free, {} cached", cache_.free_pages(),
             cache_.cached().total_pages());
  if (!config_.check_integrity) return;
  try {
    check_integrity();
  } catch (const std::exception& e) {
    fail(e.what());
    throw;
  }
}

void Scheduler::Impl::shut_down() {
  if (in_flight_ != nullptr) collect(*std::exchange(in_flight_, nullptr));
  do {
    drain();
    receive();
    while (!sequences_.empty()) {
      Sequence& sequence = sequences_.begin()->second;
      end(sequence, FinishReason::kAbort);
      release(sequence);
    }
    deliver();
  } while (!inbox_.close_if_empty());
  publish();
}

// Waits for the step in flight, whatever becomes of it: the executor must not be left with a batch
// that is gone.
void Scheduler::Impl::abandon_step() {
  if (in_flight_ == nullptr) return;
  try {
    executor_.collect(std::exchange(in_flight_, nullptr)->batch);
  } catch (const std::exception& e) {
    log::debug("scheduler: the step in flight failed too: {}", e.what());
  }
}

// Answers all requests, now and later ones. What the ledgers say is of no use any more.
void Scheduler::Impl::fail(const char* what) {
  log::error("scheduler: {}", what);
  {
    const std::lock_guard lock(mutex_);
    failure_ = *what == '\0' ? "fault without a name" : what;
  }
  abandon_step();
  const auto answer = [&](RequestId id) {
    TokenEvent& event = events_.emplace_back();
    event.request = id;
    event.finish = FinishReason::kError;
    event.error = failure_;
    count_finish(event.finish, counters_);
  };
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence.ended) answer(id);
  }
  sequences_.clear();
  queue_ = {};
  decoding_ = {};
  num_running_ = 0;
  do {
    drain();
    for (const SchedulerMessage& message : std::exchange(messages_, {})) {
      if (const auto* request = std::get_if<NewRequest>(&message)) answer(request->id);
    }
    try {
      deliver();
    } catch (const std::exception& e) {
      log::error("scheduler: the receiver of events failed: {}", e.what());
    }
  } while (!inbox_.close_if_empty());
  publish();
}

void Scheduler::Impl::deliver() {
  if (events_.empty()) return;
  const std::vector<TokenEvent> events = std::exchange(events_, {});
  sink_(events);
}

void Scheduler::Impl::publish() {
  SchedulerStats stats = counters_;
  stats.running = num_running_;
  stats.waiting = queue_.size() - (queue_.started() != nullptr ? 1 : 0);
  stats.free_pages = cache_.free_pages();
  stats.cached_pages = cache_.cached().total_pages();
  stats.locked_pages = cache_.cached().protected_pages;
  stats.total_pages = cache_.num_pages();
  const std::lock_guard lock(mutex_);
  published_ = stats;
}

SchedulerStats Scheduler::Impl::stats() const {
  SchedulerStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = published_;
  }
  stats.waiting += inbox_.num_new();
  return stats;
}

void Scheduler::Impl::check_integrity() const {
  std::vector<const Request*> admitted;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.admitted()) admitted.push_back(&sequence.request);
  }
  cache_.check_integrity(admitted);
  const auto taken = static_cast<std::size_t>(rows_.num_rows() - rows_.num_free());
  check(taken == admitted.size(), "scheduler: ", taken, " rows are taken by ", admitted.size(),
        " requests");
}

Scheduler::Scheduler(Executor& executor, SchedulerConfig config, Sink sink)
    : impl_(std::make_unique<Impl>(executor, std::move(config), std::move(sink))) {}
Scheduler::~Scheduler() = default;

void Scheduler::validate(const NewRequest& request) const { impl_->validate(request); }
void Scheduler::submit(NewRequest request) { impl_->submit(std::move(request)); }
void Scheduler::abort(RequestId id) { impl_->abort(id); }
void Scheduler::flush_cache() { impl_->flush_cache(); }
void Scheduler::run() { impl_->run(); }
void Scheduler::stop() { impl_->stop(); }
bool Scheduler::step() { return impl_->step(); }
bool Scheduler::stopped() const { return impl_->stopped(); }
SchedulerStats Scheduler::stats() const { return impl_->stats(); }
void Scheduler::check_integrity() const { impl_->check_integrity(); }

}  // namespace minisgl
