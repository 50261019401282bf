#pragma once

#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/types.h"
#include "scheduler/scheduler.h"

namespace minisgl {

/// What other threads ask of the scheduler.
struct AbortRequest {
  RequestId id;
};
struct FlushRequest {};
using SchedulerMessage = std::variant<NewRequest, AbortRequest, FlushRequest>;

/// The way into the scheduler's thread, first in first out. Any thread may push and stop; wait(),
/// drain(), forget() and close() are the scheduler's.
class Inbox {
 public:
  /// False when closed: nobody will read it. Throws Error if the id is that of a request that has
  /// not ended.
  bool push(NewRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      check(open_.insert(request.id).second, "request id ", request.id.value, " is in use");
      messages_.emplace_back(std::move(request));
      ++num_new_;
    }
    ready_.notify_one();
    return true;
  }

  template <class Message>
    requires std::same_as<Message, AbortRequest> || std::same_as<Message, FlushRequest>
  void push(Message message) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      messages_.emplace_back(message);
    }
    ready_.notify_one();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_one();
  }

  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }

  /// Requests that were pushed and not drained.
  std::int64_t num_new() const {
    const std::lock_guard lock(mutex_);
    return num_new_;
  }

  /// Blocks until there is a message or stop() was called.
  void wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return stopping_ || !messages_.empty(); });
  }

  /// As wait(), but at most `time`; false if nothing came.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ready_.wait_for(lock, time, [&] { return stopping_ || !messages_.empty(); });
  }

  /// Everything pushed so far, in order; returns at once.
  std::vector<SchedulerMessage> drain() {
    const std::lock_guard lock(mutex_);
    num_new_ = 0;
    return std::exchange(messages_, {});
  }

  /// The request has ended and its memory is gone.
  void forget(RequestId id) {
    const std::lock_guard lock(mutex_);
    open_.erase(id);
  }

  /// Refuses further messages, unless there are some: then false.
  bool close_if_empty() {
    const std::lock_guard lock(mutex_);
    if (!messages_.empty()) return false;
    closed_ = true;
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<SchedulerMessage> messages_;
  std::set<RequestId> open_;  // pushed, not forgotten
  std::int64_t num_new_ = 0;
  bool stopping_ = false;
  bool closed_ = false;
};

}  // namespace minisgl
