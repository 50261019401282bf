// What was compiled last, by text.

#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace minisgl {

/// Values by text, the least recently used dropped first when they are more bytes than the limit
/// (the newest stays however large it is). Thread-safe. A value that is dropped lives on with those
/// that hold it; one that cannot be made is made again the next time.
template <class Value>
class GrammarCache {
 public:
  using Pointer = std::shared_ptr<const Value>;
  struct Made {
    Pointer value;
    std::int64_t bytes = 0;
  };

  explicit GrammarCache(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// The value of `key`, made by `make` if it is not there: by one thread, for which others that
  /// ask for the same key wait. Throws what `make` throws, to all of them.
  Pointer get(const std::string& key, const std::function<Made()>& make) {
    std::promise<Made> promise;
    std::shared_future<Made> future;
    bool is_mine = false;
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(key);
      if (found != entries_.end()) {
        order_.splice(order_.begin(), order_, found->second.place);
        future = found->second.future;
      } else {
        future = promise.get_future().share();
        order_.push_front(key);
        entries_.emplace(key, Entry{future, order_.begin(), 0});
        is_mine = true;
      }
    }
    if (!is_mine) return future.get().value;
    try {
      Made made = make();
      const Pointer value = made.value;
      added(key, made.bytes);
      promise.set_value(std::move(made));
      return value;
    } catch (...) {
      forget(key);
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  std::int64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    std::shared_future<Made> future;
    std::list<std::string>::iterator place;
    std::int64_t bytes = 0;  // 0 while it is made
  };

  void added(const std::string& key, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;  // dropped while it was made
    found->second.bytes = bytes;
    bytes_ += bytes;
    while (bytes_ > max_bytes_ && order_.size() > 1) {
      const auto last = entries_.find(order_.back());
      bytes_ -= last->second.bytes;
      entries_.erase(last);
      order_.pop_back();
    }
  }

  void forget(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    order_.erase(found->second.place);
    entries_.erase(found);
  }

  const std::int64_t max_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, Entry> entries_;
  std::list<std::string> order_;  // of use, the last one first
  std::int64_t bytes_ = 0;
};

}  // namespace minisgl
