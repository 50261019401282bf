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
  explicit AllocationCounter(bool own_thread = false) { skips_this_thread = !own_thread; }
  ~AllocationCounter() {
    active = false;
    skips_this_thread = false;
  }
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  /// Counts from 0. Any thread.
  void start() {
    counted = 0;
    active = true;
  }
  /// Stops; returns what was counted since start().
  std::int64_t stop() {
    active = false;
    return counted;
  }
  std::int64_t count() const { return counted; }

  /// Called by operator new.
  static void* allocate(std::size_t bytes, std::size_t alignment) {
    if (active.load(std::memory_order_relaxed) && !skips_this_thread)
      counted.fetch_add(1, std::memory_order_relaxed);
    if (bytes == 0) bytes = 1;
    void* memory =
        alignment <= alignof(std::max_align_t)
            ? std::malloc(bytes)
            : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }

 private:
  inline static std::atomic<bool> active{false};
  inline static std::atomic<std::int64_t> counted{0};
  inline static thread_local bool skips_this_thread = false;
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
