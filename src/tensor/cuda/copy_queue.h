// Small copies of a stream, gathered. For files below folders named cuda/.

#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace minisgl::cuda {

/// Copies that wait to be done together by one kernel: before a step some ten arrays of a few
/// hundred bytes travel, and each copy of its own would cost the GPU some 2 us.
///
/// What is in the queue happens as if the copies were done one after the other: one that would
/// read or overwrite what an earlier one writes or reads is refused, except that a copy of a copy
/// reads the first one's source.
class CopyQueue {
 public:
  struct Rows {
    std::byte* dst;
    const std::byte* src;
    std::int64_t dst_stride, src_stride;  ///< bytes from one row to the next
    std::int64_t row_bytes, num_rows;
  };

  /// False if the copy does not belong here, or not before flush(): it is large, not made of
  /// aligned words, not in memory that the GPU reaches (pageable), the queue is full, or the copy
  /// would depend on one that waits.
  bool add(Rows rows);
  bool empty() const { return count_ == 0; }
  /// Enqueues all on `stream` and empties the queue. Throws Error if it cannot be launched.
  void flush(cudaStream_t stream);

  static constexpr int kMaxCopies = 32;
  struct Copies {
    std::array<Rows, kMaxCopies> rows;
  };

 private:
  Copies copies_;
  int count_ = 0;
};

}  // namespace minisgl::cuda
