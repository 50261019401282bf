// Where a request's updates wait on their way from the scheduler's thread to the I/O thread.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "llm/generator.h"
#include "server/answer.h"
#include "server/reply.h"
#include "server/server_metrics.h"

namespace minisgl {

struct ExchangeOptions {
  std::size_t max_backlog_bytes = 0;
  /// When the request had come in.
  std::chrono::steady_clock::time_point arrival = {};
  /// Shared: the last update of an aborted answer may come when the server is gone.
  std::shared_ptr<ServerMetrics> metrics;
};

/// One request from its submission to its last update. The generator's callbacks share ownership.
///
/// Thread safety: deliver() on any thread; start() on one; after start() returned, all others on
/// one consumer thread.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  /// `notify` is called on the scheduler's thread when there is something to take() and nothing was
  /// there before (if the request is not streamed: at the end of each choice, and now and then
  /// before); it must be quick and must not call back.
  Exchange(Generator& generator, Job job, ExchangeOptions options, std::function<void()> notify);

  /// Submits every choice. Throws what Generator::submit() threw; then nothing is left running.
  void start();

  /// Everything that arrived, as bytes of the stream (empty for requests that are not streamed).
  std::string take();
  /// Ends the answer with an error; returns the bytes to send for a stream.
  std::string fail(int status, const std::string& message);
  /// Aborts what still runs; notify() is not called any more.
  void cancel();
  /// True once more was waiting than max_backlog_bytes: updates were lost, the answer is useless.
  bool overflowed() const;

  const Answer& answer() const { return answer_; }

 private:
  void deliver(std::size_t choice, GenerateUpdate update);

  Generator& generator_;
  const ApiRequest request_;
  const ExchangeOptions options_;
  Answer answer_;
  std::vector<RequestTimer> timers_;  // of each choice; used where its updates are delivered
  std::vector<RequestId> ids_;

  mutable std::mutex mutex_;  // guards all below
  std::function<void()> notify_;
  std::vector<std::pair<std::size_t, GenerateUpdate>> inbox_;
  std::size_t backlog_bytes_ = 0;
  bool overflowed_ = false;
};

/// Owns an Exchange on behalf of the client: whatever way it goes, what runs is aborted.
class RunningAnswer {
 public:
  RunningAnswer(std::shared_ptr<Exchange> exchange, std::shared_ptr<void> slot)
      : exchange_(std::move(exchange)), slot_(std::move(slot)) {}
  RunningAnswer(RunningAnswer&&) = default;
  RunningAnswer& operator=(RunningAnswer&&) = delete;
  ~RunningAnswer() {
    if (exchange_) exchange_->cancel();
  }
  Exchange& operator*() const { return *exchange_; }
  Exchange* operator->() const { return exchange_.get(); }

 private:
  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<void> slot_;  // one of the requests that are counted against a limit
};

}  // namespace minisgl
