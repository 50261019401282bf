#include "tensor/arena.h"

#include <algorithm>

#include "base/math.h"

namespace minisgl {

TensorView ScratchArena::alloc(const Shape& shape, DType dtype) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t bytes = round_up(bytes_of(dtype, shape.numel()), kAlignment);
  std::byte* data = nullptr;
  if (!counting_) {
    const auto capacity = static_cast<std::int64_t>(buffer_.size());
    check(used_bytes_ + bytes <= capacity, "the scratch arena of ", capacity,
          " bytes is too small for ", to_string(shape), " ", name(dtype), " on top of ",
          used_bytes_, " bytes in use");
    data = buffer_.data() + used_bytes_;
  }
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return TensorView(data, shape, dtype, counting_ ? kCpu : buffer_.device());
}

}  // namespace minisgl
