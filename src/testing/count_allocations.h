// Counts heap allocations. Replaces operator new of the whole program: include it in at most one
// file of a program.

#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace minisgl::testing_util {

/// While it lives, allocations of all threads but the one that made it are counted, or, with
/// `own_thread`, of that one too. One at a time.
class AllocationCounter {
 public:
  explicit AllocationCounter(bool own_thread = false) { excluded_ = !own_thread; }
  ~AllocationCounter() {
    counting_ = false;
    excluded_ = false;
  }
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  /// Counts from 0. Any thread.
  void start() {
    count_ = 0;
    counting_ = true;
  }
  /// Stops; returns what was counted since start().
  std::int64_t stop() {
    counting_ = false;
    return count_;
  }
  std::int64_t count() const { return count_; }

  /// Called by operator new.
  static void* allocate(std::size_t bytes, std::size_t alignment) {
    if (counting_.load(std::memory_order_relaxed) && !excluded_)
      count_.fetch_add(1, std::memory_order_relaxed);
    if (bytes == 0) bytes = 1;
    void* memory =
        alignment <= alignof(std::max_align_t)
            ? std::malloc(bytes)
            : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }

 private:
  inline static std::atomic<bool> counting_{false};
  inline static std::atomic<std::int64_t> count_{0};
  inline static thread_local bool excluded_ = false;
};

}  // namespace minisgl::testing_util

// The forms for arrays and those that do not throw call these. Out of line, so that the compiler
// does not take new and free() for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return minisgl::testing_util::AllocationCounter::allocate(bytes, 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return minisgl::testing_util::AllocationCounter::allocate(bytes,
                                                            static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
