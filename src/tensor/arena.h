// Scratch memory of a step: allocation is an addition, release is a subtraction.

#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace minisgl {

/// A stack of temporaries. Not thread-safe: used by the thread that enqueues a step.
///
/// A counting arena owns nothing and hands out views without memory; peak_bytes() of a dry step is
/// then the capacity that a real arena needs for the same step.
class ScratchArena {
 public:
  /// Counting.
  ScratchArena() : counting_(true) {}
  explicit ScratchArena(std::int64_t capacity_bytes, Device device = kCpu)
      : counting_(false), buffer_(static_cast<std::size_t>(capacity_bytes), {.device = device}) {}

  /// Uninitialised memory, aligned to 64 bytes, valid until the scope that it was made in ends.
  /// Throws Error when the plan was too small.
  TensorView alloc(const Shape& shape, DType dtype);

  std::int64_t used_bytes() const { return used_bytes_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }
  void rewind(std::int64_t used_bytes) { used_bytes_ = used_bytes; }

 private:
  bool counting_;
  Buffer buffer_;
  std::int64_t used_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// Releases what was allocated since its construction.
class ScratchScope {
 public:
  explicit ScratchScope(ScratchArena& arena) : arena_(arena), start_bytes_(arena.used_bytes()) {}
  ~ScratchScope() { arena_.rewind(start_bytes_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  ScratchArena& arena_;
  std::int64_t start_bytes_;
};

}  // namespace minisgl
