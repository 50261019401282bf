// Memory with an owner.

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/device.h"

namespace minisgl {

struct BufferOptions {
  Device device = kCpu;
  /// Reserve addresses only; a page becomes memory when it is first written. For the KV pool,
  /// whose size is a bound and not a need.
  bool lazy = false;
  /// Host memory that this GPU copies from and to at full speed, while the CPU goes on. Not lazy. A
  /// CPU has no use for it: ordinary memory then.
  Device pinned_for = kCpu;
};

/// A block of zeroed memory, aligned to 64 bytes (large CPU blocks: to a 2 MB huge page, which the
/// kernel is asked for: measured 1.6 times the read bandwidth of small pages; blocks of a GPU: to
/// 256 bytes). Move-only.
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error naming the size if there is no memory.
  explicit Buffer(std::size_t bytes, BufferOptions options = {});
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  Device device() const { return device_; }
  bool empty() const { return size_ == 0; }

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  // bytes of mmap, 0 when from the heap
  std::byte* mapping_ = nullptr;
  bool pinned_ = false;
  Device device_;
};

}  // namespace minisgl
