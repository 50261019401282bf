// A queue between two threads that can be closed.

#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace minisgl {

/// Unbounded FIFO; any thread may push, pop and close. After close() pushes are refused, what is
/// queued can still be popped, and a blocked pop returns.
template <class T>
class ClosableQueue {
 public:
  /// False (and `value` dropped) when the queue is closed.
  bool push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  /// Blocks until there is an item; nullopt once the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take(lock);
  }

  /// Returns at once; nullopt when there is nothing.
  std::optional<T> try_pop() {
    std::unique_lock lock(mutex_);
    return take(lock);
  }

  /// Everything queued, in order; returns at once.
  std::vector<T> drain() {
    const std::lock_guard lock(mutex_);
    std::vector<T> all(std::make_move_iterator(items_.begin()),
                       std::make_move_iterator(items_.end()));
    items_.clear();
    return all;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::optional<T> take(const std::unique_lock<std::mutex>& /*held*/) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace minisgl
