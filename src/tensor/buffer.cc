#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "tensor/cuda/device.h"

namespace minisgl {
namespace {
constexpr std::size_t kHugePage = 2U << 20;
constexpr std::size_t kAlignment = 64;
}  // namespace

Buffer::Buffer(std::size_t bytes, BufferOptions options) : size_(bytes), device_(options.device) {
  check(cuda::kBuilt || (device_.is_cpu() && options.pinned_for.is_cpu()),
        "this build has no memory of device ",
        to_string(device_.is_cpu() ? options.pinned_for : device_));
  if (bytes == 0) return;
  if constexpr (cuda::kBuilt) {
    if (!device_.is_cpu()) {
      data_ = cuda::allocate(bytes, device_);
      return;
    }
    if (!options.pinned_for.is_cpu()) {
      data_ = cuda::allocate_pinned(bytes);
      pinned_ = true;
      return;
    }
  }
  if (bytes < kHugePage && !options.lazy) {
    data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, round_up(bytes, kAlignment)));
    check(data_ != nullptr, "out of memory: could not allocate ", bytes, " bytes");
    std::memset(data_, 0, bytes);
    return;
  }
  mapped_ = round_up(bytes, kHugePage) + kHugePage;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (options.lazy ? MAP_NORESERVE : 0);
  void* mapping = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, -1, 0);
  check(mapping != MAP_FAILED, "out of memory: could not map ", bytes, " bytes");
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = reinterpret_cast<std::byte*>(
      round_up(reinterpret_cast<std::uintptr_t>(mapping_), std::uintptr_t{kHugePage}));
  // Lazy memory is touched here and there: small pages keep what is resident close to what is used.
  if (!options.lazy) madvise(data_, round_up(bytes, kHugePage), MADV_HUGEPAGE);
}

Buffer::~Buffer() { release(); }

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  pinned_ = std::exchange(other.pinned_, false);
  device_ = other.device_;
  return *this;
}

void Buffer::release() noexcept {
  if constexpr (cuda::kBuilt) {
    if (data_ != nullptr && !device_.is_cpu()) {
      cuda::release(std::exchange(data_, nullptr), device_);
      return;
    }
    if (pinned_) {
      cuda::release_pinned(std::exchange(data_, nullptr));
      pinned_ = false;
      return;
    }
  }
  if (mapping_ != nullptr) {
    munmap(mapping_, mapped_);
  } else {
    std::free(data_);
  }
  data_ = mapping_ = nullptr;
}

}  // namespace minisgl
