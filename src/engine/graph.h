// A recorded forward pass.

#pragma once

#include "tensor/stream.h"

namespace minisgl {

/// A forward pass that was recorded once, for one number of rows, and is replayed as a whole. It
/// reads and writes the addresses of its recording: before each replay a step's inputs are copied
/// there.
class Graph {
 public:
  virtual ~Graph() = default;

  /// Enqueues all that was recorded. Allocates nothing and does not synchronise. Throws what the
  /// recorded work throws at once (on a CPU: all of it), after which the graph may be replayed
  /// again.
  virtual void replay(Stream& stream) = 0;
};

}  // namespace minisgl
