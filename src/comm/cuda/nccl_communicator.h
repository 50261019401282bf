// Collectives of tensors in the memory of GPUs.

#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/host_group.h"
#include "tensor/device.h"

namespace minisgl {

/// What a sum of bf16 numbers takes, in a graph of many of them.
struct SumTime {
  std::int64_t bytes = 0;
  double nccl_us = 0;
  double one_shot_us = 0;  ///< by the kernel of ours; 0: it does not take so many, or is not there
};

/// Sums and collections by NCCL; where GPUs can write to each other's memory, sums of few bytes by
/// a kernel of ours (comm/cuda/one_shot.h). Up to which size that one is faster is measured when
/// the communicator is made, and rank 0's finding counts.
class GpuCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  /// Sums of at most so many bytes are the kernel's; 0: none.
  virtual std::int64_t one_shot_bytes() const = 0;
  /// Measures sums of 8 KB, 16 KB, ... up to `most_bytes`. All ranks together.
  virtual std::vector<SumTime> measure(std::int64_t most_bytes) = 0;
};

/// Every rank of `host` makes one, each for a GPU of its own. `host` must outlive it. Throws Error
/// if NCCL is not there, or not all ranks are ready within `timeout`.
std::unique_ptr<GpuCommunicator> make_nccl_communicator(HostGroup& host, Device device,
                                                        std::chrono::milliseconds timeout);

}  // namespace minisgl
