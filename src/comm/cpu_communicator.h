// Collectives of tensors in host memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace minisgl {

/// Runs where the stream runs: a rank waits there for what the others send.
///
/// A sum of few bytes, or of two ranks, is one exchange: everybody sends everything to everybody
/// and adds up. A larger one is two: rank r is sent, adds up and returns the r-th part of the
/// elements. Both add in the order of the ranks.
class CpuCommunicator final : public Communicator {
 public:
  explicit CpuCommunicator(std::unique_ptr<Transport> transport);

  void all_reduce(TensorView x, Stream& stream) override;
  void all_gather(TensorView x, TensorView parts, Stream& stream) override;

  /// Sums of more bytes, among more than two ranks, are done in parts.
  static constexpr std::int64_t kMaxWholeBytes = 64 << 10;

 private:
  void reduce_whole(float* x, std::int64_t count, ThreadPool& pool);
  void reduce_in_parts(float* x, std::int64_t count, ThreadPool& pool);
  void add_up(float* x, const float* mine, std::int64_t count, ThreadPool& pool);
  std::span<std::byte> received(int from, std::int64_t count);

  std::unique_ptr<Transport> transport_;
  std::vector<std::vector<float>> received_;  // of each rank; grow to the largest sum
  std::vector<Transport::Send> sends_;
  std::vector<Transport::Receive> receives_;
};

}  // namespace minisgl
