#include "comm/cpu_communicator.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"

namespace minisgl {
namespace {

std::span<const std::byte> bytes_of_floats(const float* data, std::int64_t count) {
  return std::as_bytes(std::span(data, static_cast<std::size_t>(count)));
}
std::span<std::byte> writable_bytes_of_floats(float* data, std::int64_t count) {
  return std::as_writable_bytes(std::span(data, static_cast<std::size_t>(count)));
}

/// The part of `count` elements that rank `rank` of `size` adds up.
struct Part {
  std::int64_t begin, count;
};
Part part_of(std::int64_t count, int rank, int size) {
  const std::int64_t begin = count * rank / size;
  return {begin, count * (rank + 1) / size - begin};
}

}  // namespace

CpuCommunicator::CpuCommunicator(std::unique_ptr<Transport> transport)
    : Communicator(transport->rank(), transport->size()),
      transport_(std::move(transport)),
      received_(static_cast<std::size_t>(size())) {}

void CpuCommunicator::all_reduce(TensorView x, Stream& stream) {
  check(x.dtype == DType::kF32 && x.is_contiguous(),
        "all_reduce on a CPU takes contiguous f32 tensors");
  if (x.numel() == 0) return;
  as_cpu(stream).run([this, x](ThreadPool& pool) {
    auto* data = reinterpret_cast<float*>(x.data);
    if (size() == 2 || x.bytes() <= kMaxWholeBytes) {
      reduce_whole(data, x.numel(), pool);
    } else {
      reduce_in_parts(data, x.numel(), pool);
    }
  });
}

std::span<std::byte> CpuCommunicator::received(int from, std::int64_t count) {
  std::vector<float>& room = received_[static_cast<std::size_t>(from)];
  if (static_cast<std::int64_t>(room.size()) < count) room.resize(static_cast<std::size_t>(count));
  return writable_bytes_of_floats(room.data(), count);
}

/// x[i] = the sum over the ranks, in their order, of what was received, `mine` in this rank's
/// place. `mine` may be x.
void CpuCommunicator::add_up(float* x, const float* mine, std::int64_t count, ThreadPool& pool) {
  constexpr std::int64_t kElementsPerPart = 1 << 12;
  const auto terms = [&](int of) {
    return of == rank() ? mine : received_[static_cast<std::size_t>(of)].data();
  };
  pool.parallel_for(ceil_div(count, kElementsPerPart), [&](std::int64_t part) {
    const std::int64_t begin = part * kElementsPerPart;
    const std::int64_t n = std::min(count - begin, kElementsPerPart);
    float sums[kElementsPerPart];  // x may be one of the terms
    std::copy_n(terms(0) + begin, n, sums);
    for (int of = 1; of < size(); ++of) {
      const float* term = terms(of) + begin;
      for (std::int64_t i = 0; i < n; ++i) sums[i] += term[i];
    }
    std::copy_n(sums, n, x + begin);
  });
}

void CpuCommunicator::reduce_whole(float* x, std::int64_t count, ThreadPool& pool) {
  sends_.clear();
  receives_.clear();
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    sends_.push_back({other, bytes_of_floats(x, count)});
    receives_.push_back({other, received(other, count)});
  }
  transport_->exchange(sends_, receives_);
  add_up(x, x, count, pool);
}

void CpuCommunicator::reduce_in_parts(float* x, std::int64_t count, ThreadPool& pool) {
  const Part mine = part_of(count, rank(), size());
  sends_.clear();
  receives_.clear();
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const Part theirs = part_of(count, other, size());
    sends_.push_back({other, bytes_of_floats(x + theirs.begin, theirs.count)});
    receives_.push_back({other, received(other, mine.count)});
  }
  transport_->exchange(sends_, receives_);
  add_up(x + mine.begin, x + mine.begin, mine.count, pool);
  sends_.clear();
  receives_.clear();
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const Part theirs = part_of(count, other, size());
    sends_.push_back({other, bytes_of_floats(x + mine.begin, mine.count)});
    receives_.push_back({other, writable_bytes_of_floats(x + theirs.begin, theirs.count)});
  }
  transport_->exchange(sends_, receives_);
}

void CpuCommunicator::all_gather(TensorView x, TensorView parts, Stream& stream) {
  check_tensor(parts, {size(), x.numel()}, x.dtype, "parts of all_gather");
  check(x.is_contiguous() && parts.is_contiguous(), "all_gather takes contiguous tensors");
  if (x.numel() == 0) return;
  as_cpu(stream).run([this, x, parts](ThreadPool&) {
    const auto bytes = static_cast<std::size_t>(x.bytes());
    sends_.clear();
    receives_.clear();
    for (int other = 0; other < size(); ++other) {
      std::byte* room = parts.data + static_cast<std::size_t>(other) * bytes;
      if (other == rank()) {
        std::memcpy(room, x.data, bytes);
        continue;
      }
      sends_.push_back({other, {x.data, bytes}});
      receives_.push_back({other, {room, bytes}});
    }
    transport_->exchange(sends_, receives_);
  });
}

}  // namespace minisgl
