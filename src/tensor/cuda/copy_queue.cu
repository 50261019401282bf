#include "tensor/cuda/copy_queue.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "tensor/cuda/error.h"

namespace minisgl::cuda {
namespace {

constexpr std::int64_t kMaxBytes = 256 << 10;  // more: a copy engine is faster
constexpr std::int64_t kWord = 4;
constexpr int kThreads = 256;
constexpr int kMaxBlocks = 8;  // of a copy

/// Grid: (blocks of a copy, copies). Host memory is read past the caches: it has changed since the
/// last kernel that read it.
__global__ void copy_kernel(const __grid_constant__ CopyQueue::Copies copies) {
  const CopyQueue::Rows& rows = copies.rows[blockIdx.y];
  const std::int64_t words = rows.row_bytes / kWord;
  const std::int64_t count = words * rows.num_rows;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t row = rows.num_rows == 1 ? 0 : i / words;
    const std::int64_t word = i - row * words;
    const auto* from = reinterpret_cast<const int*>(rows.src + row * rows.src_stride) + word;
    reinterpret_cast<int*>(rows.dst + row * rows.dst_stride)[word] = __ldcv(from);
  }
}

struct Range {
  const std::byte* begin;
  const std::byte* end;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
};

Range written(const CopyQueue::Rows& r) {
  return {r.dst, r.dst + (r.num_rows - 1) * r.dst_stride + r.row_bytes};
}

Range read(const CopyQueue::Rows& r) {
  return {r.src, r.src + (r.num_rows - 1) * r.src_stride + r.row_bytes};
}

bool is_in_words(const CopyQueue::Rows& r) {
  const auto bits = reinterpret_cast<std::uintptr_t>(r.dst) |
                    reinterpret_cast<std::uintptr_t>(r.src) |
                    static_cast<std::uintptr_t>(r.row_bytes);
  const std::uintptr_t strides =
      r.num_rows == 1 ? 0 : static_cast<std::uintptr_t>(r.dst_stride | r.src_stride);
  return (bits | strides) % kWord == 0;
}

bool is_reached(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeHost;
}

}  // namespace

bool CopyQueue::add(Rows rows) {
  if (count_ == kMaxCopies || rows.row_bytes * rows.num_rows > kMaxBytes || !is_in_words(rows))
    return false;
  for (int i = 0; i < count_; ++i) {
    const Rows& earlier = copies_.rows[static_cast<std::size_t>(i)];
    const Range theirs = written(earlier);
    if (theirs.overlaps(written(rows)) || read(earlier).overlaps(written(rows))) return false;
    if (!theirs.overlaps(read(rows))) continue;
    if (earlier.num_rows != 1 || !theirs.contains(read(rows))) return false;
    rows.src = earlier.src + (rows.src - earlier.dst);
  }
  if (!is_reached(rows.dst) || !is_reached(rows.src)) return false;
  copies_.rows[static_cast<std::size_t>(count_++)] = rows;
  return true;
}

void CopyQueue::flush(cudaStream_t stream) {
  if (count_ == 0) return;
  std::int64_t largest = 0;
  for (int i = 0; i < count_; ++i) {
    const Rows& rows = copies_.rows[static_cast<std::size_t>(i)];
    largest = std::max(largest, rows.row_bytes * rows.num_rows / kWord);
  }
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>((largest + kThreads - 1) / kThreads, 1, kMaxBlocks));
  const dim3 grid(blocks, static_cast<unsigned>(count_));
  count_ = 0;  // also if the launch fails
  copy_kernel<<<grid, kThreads, 0, stream>>>(copies_);
  check_launch("the copies before a step");
}

}  // namespace minisgl::cuda
