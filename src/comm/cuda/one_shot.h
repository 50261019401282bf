// Sums of small tensors over GPUs that can write to each other's memory.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/host_group.h"
#include "tensor/cuda/stream.h"
#include "tensor/tensor.h"

namespace minisgl::gpu {

/// An all-reduce of one kernel: each rank writes its numbers to all others, waits for theirs and
/// adds up, in the order of the ranks. That is more bytes than a ring would send and one exchange
/// only, which is faster as long as latency counts and not bandwidth.
///
///   rank 0   x ──┬─► rank 1's box 0        wait for flags      x = box 0 + box 1
///   rank 1   x ──┴─► rank 0's box 1        of all blocks       x = box 0 + box 1
///
/// Every block of threads has its own part of the numbers, of the boxes and of the flags. Boxes are
/// used in turns of two: a block that writes to a box for the second time has seen, by the flag of
/// the turn between, that the kernel which read it before has ended. Turns are counted in the
/// memory of the GPU, so the kernel may be recorded in a graph.
///
/// All ranks make one together and enqueue the same sums in the same order; one thread.
class OneShot {
 public:
  static constexpr int kMaxRanks = 8;
  static constexpr std::int64_t kMaxBytes = 1 << 20;  ///< of a tensor

  /// Null, on all ranks, if some GPU cannot write to another's memory: another host, no peer
  /// access, too many; or if two ranks are in one process.
  static std::unique_ptr<OneShot> make(HostGroup& host, Device device);
  ~OneShot();
  OneShot(const OneShot&) = delete;
  OneShot& operator=(const OneShot&) = delete;

  /// Whether all_reduce() can take it: f32 or bf16, a multiple of 16 bytes, not too large.
  static bool fits(const TensorView& x);
  /// x = the sum of all ranks' x, in f32 and rounded once. Enqueued.
  void all_reduce(TensorView x, cudaStream_t stream);

  /// Kernels that wait for a rank which is gone end, with wrong sums. Any thread.
  void abort() noexcept;

 private:
  OneShot() = default;

  Device device_;
  int rank_ = 0;
  int size_ = 0;
  std::byte* own_ = nullptr;                   // boxes and flags that the others write
  std::vector<std::byte*> all_;                // of all ranks, as seen from here
  std::vector<std::byte*> mapped_;             // those of the others
  std::uint32_t* turns_ = nullptr;             // [blocks], of this rank
  volatile std::uint32_t* aborted_ = nullptr;  // memory of the host
};

}  // namespace minisgl::gpu
