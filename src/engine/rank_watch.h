// Breaks off what a GPU would compute for ever with ranks that are gone.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/communicator.h"

namespace minisgl {

/// Looks, from a thread of its own, after the calls into a GPU behind whose kernels other ranks
/// stand. A kernel that adds up with a rank that is gone does not end, and then neither need the
/// call that comes next: a launch waits when its kernel has yet to be loaded, or the queue is full.
/// So whoever calls cannot be the one who notices.
///
/// When a rank has failed, or a call has taken too long, the communicator is broken off: the calls
/// return, and check() tells why their results are worth nothing.
class RankWatch {
 public:
  /// `sums` outlives the watch. `limit`: of a call. `fault`: asked while a call runs, by the
  /// watch's thread; what it returns, unless empty, is a fault. May be null.
  RankWatch(Communicator& sums, std::chrono::milliseconds limit,
            std::function<std::string()> fault);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// A call is watched as long as this lives. One at a time; `watch` may be null.
  class Call {
   public:
    explicit Call(RankWatch* watch);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    RankWatch* watch_;
  };

  /// Throws Error with the fault, if there was one. Any thread.
  void check() const;

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  /// Why the call that runs is to be broken off, or "".
  std::string find_fault() const;

  Communicator& sums_;
  std::chrono::milliseconds limit_;
  std::function<std::string()> ask_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;
  bool ends_ = false;
  Clock::time_point begun_;
  std::string fault_;
  std::thread thread_;
};

}  // namespace minisgl
