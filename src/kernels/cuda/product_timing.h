// Which of several ways to compute a product is fastest. For files below cuda/.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>

#include "kernels/cuda/linear.h"
#include "tensor/buffer.h"

namespace minisgl::kernels::gpu {

class TimingEvent {
 public:
  TimingEvent();
  ~TimingEvent();
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Measures on one stream.
class ProductTimer {
 public:
  /// Computes a product in way `i` on the stream.
  using Run = std::function<void(std::size_t i, const Product& product)>;

  explicit ProductTimer(cuda::CudaStream& stream) : stream_(stream) {}

  /// The fastest of `ways`, at least one. Each is tried as it will run: some products one after the
  /// other in a graph, so that a kernel may begin while the one before it ends, with weights that
  /// lie in no cache. Memory of our own stands in for them, and for a y that would be added to.
  /// Allocates once; synchronises.
  std::size_t fastest(std::size_t ways, Product product, const Run& run);

 private:
  using Graph =
      std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, cudaError_t (*)(cudaGraphExec_t)>;

  /// The products of `chain`, computed in that way.
  Graph record(std::size_t way, std::span<const Product> chain, const Run& run);
  /// Milliseconds that it takes.
  float time_of(cudaGraphExec_t graph);
  std::int64_t l2_bytes() const;

  cuda::CudaStream& stream_;
  Buffer cold_;  // four times what the cache holds; made when something is measured
  Buffer sums_;
  TimingEvent begin_, end_;
};

}  // namespace minisgl::kernels::gpu
