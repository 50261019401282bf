// The compute pool: one caller and a fixed number of helper threads share the parts of a loop.

#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace minisgl {

/// Thread safety: parallel_for is called by one thread at a time and not from inside a part.
///
/// Invariants
///  1. A part is run exactly once, by whichever thread claims it first; a helper that the
///     operating system has put aside delays only the part that it holds, never the whole loop.
///  2. Which thread runs a part is not determined: a part's result must not depend on it.
class ThreadPool {
 public:
  /// `num_threads` >= 1 counts the caller.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(helpers_.size()) + 1; }

  /// body(i) for every i in [0, num_parts), concurrently; returns when all are done. body must not
  /// throw. Does not allocate. Costs about 0.1 us when the helpers are awake; they spin for some
  /// 50 us after a loop before they sleep.
  template <class Body>
  void parallel_for(std::int64_t num_parts, const Body& body) {
    if (num_parts <= 0) return;
    if (num_parts == 1 || helpers_.empty()) {
      for (std::int64_t i = 0; i < num_parts; ++i) body(i);
      return;
    }
    run(num_parts, &call<Body>, &body);
  }

 private:
  using Call = void (*)(const void* body, std::int64_t part);

  template <class Body>
  static void call(const void* body, std::int64_t part) {
    (*static_cast<const Body*>(body))(part);
  }

  void run(std::int64_t num_parts, Call call, const void* body);
  void run_some(std::int64_t base, std::int64_t num_parts, Call call, const void* body);
  bool claim_and_run();
  void helper_main();

  // The loop being run: number of loops so far (24 bits), parts in all (20), parts claimed (20).
  // A part is claimed by one compare-and-swap, after which call_ and body_ cannot change until
  // that part is reported done: run_some() waits for it.
  std::atomic<std::uint64_t> state_{0};
  std::atomic<std::int64_t> done_{0};
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::int64_t base_ = 0;

  std::atomic<std::uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;
};

/// Processors that this process may use: the affinity mask, less what a cgroup quota leaves
/// (rounded up), at least 1.
int available_processors();

}  // namespace minisgl
