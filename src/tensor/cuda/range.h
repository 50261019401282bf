// Names for parts of the program in a profiler's time line (Nsight Systems and others). No CUDA
// header is needed to use this.

#pragma once

#include "tensor/cuda/build.h"

namespace minisgl::cuda {

/// What Range does; to be called in pairs.
void push_range(const char* name) noexcept;
void pop_range() noexcept;

/// What the calling thread does until the end of the scope is shown under `name`. Scopes nest.
/// Costs next to nothing while no profiler is attached, and nothing in builds without code for
/// GPUs.
class Range {
 public:
  explicit Range([[maybe_unused]] const char* name) {
    if constexpr (kBuilt) push_range(name);
  }
  ~Range() {
    if constexpr (kBuilt) pop_range();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace minisgl::cuda
