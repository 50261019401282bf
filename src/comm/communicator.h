// Sums and collections of tensors over the ranks that share a model.

#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl {

/// This rank's place in a group. All ranks of a group enqueue the same operations with the same
/// shapes in the same order; a layer has a null pointer in its place when there is one rank only.
///
/// Operations may be recorded in a graph, which then has to go before its communicator does.
/// Called by one thread, except for abort(). A rank that does not take part in time is an Error: on
/// a CPU thrown where the stream runs, on a GPU found by whoever watches it.
class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// x = the sum of all ranks' x. Every rank gets the same bits.
  ///
  /// Types    f32; on a GPU bf16 as well
  /// Layout   contiguous
  /// Order    on a CPU each element is summed in the order of the ranks, whatever the shape: the
  ///          result of a row does not depend on the rows beside it.
  /// Timing   enqueued on `stream`; does not synchronise.
  virtual void all_reduce(TensorView x, Stream& stream) = 0;

  /// parts[r] = x of rank r. x of any shape, parts [size, x.numel()]; both contiguous, of one type.
  /// They must not overlap. Enqueued on `stream`.
  virtual void all_gather(TensorView x, TensorView parts, Stream& stream) = 0;

  /// Ends what waits for a rank that is gone; results are wrong from here on. Nothing on a CPU,
  /// where waiting ends by itself. Any thread, once.
  virtual void abort() noexcept {}

 private:
  int rank_;
  int size_;
};

}  // namespace minisgl
