// What a captured graph reads, and how it is refreshed.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl {

/// Whether a captured buffer must be written anew for every replay.
enum class CapturedContent : std::uint8_t { kRefreshed, kConstant };

/// A buffer whose address is part of a graph. Everything that a captured step reads, other than
/// weights, KV pool and scratch, is declared as one of these: an undeclared input is one that
/// nobody refreshes.
struct CapturedBuffer {
  std::string name;  ///< "positions", "fa.cache_seqlens"
  TensorView view;   ///< the part that a graph of this size reads
  CapturedContent content = CapturedContent::kRefreshed;
};

/// Through which captured buffers are refreshed: every copy names its buffer, so that a test can
/// leave one out and a checker can tell which were written.
class CaptureWriter {
 public:
  virtual ~CaptureWriter() = default;
  /// Enqueues dst[i] = src[i], or dst[i][j] = src[i][j], for every index that `src` has; what lies
  /// beyond keeps its content. `dst` is (a part of) the buffer `name`; ranks and types are equal,
  /// the last dimensions contiguous. Allocates nothing.
  virtual void copy(std::string_view name, TensorView dst, TensorView src, Stream& stream) = 0;
};

}  // namespace minisgl
