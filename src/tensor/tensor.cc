#include "tensor/tensor.h"

#include <cstring>

#include "tensor/cuda/device.h"

namespace minisgl {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(shape.dims[i]);
  return text + "]";
}

bool TensorView::is_contiguous() const {
  std::int64_t expected = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    if (shape.dims[i] != 1 && strides[i] != expected) return false;
    expected *= shape.dims[i];
  }
  return true;
}

TensorView TensorView::slice(std::int64_t begin, std::int64_t end) const {
  check(rank() > 0 && begin >= 0 && begin <= end && end <= dim(0), "slice [", begin, ", ", end,
        ") of shape ", to_string(shape));
  TensorView part = *this;
  if (part.data != nullptr) part.data += bytes_of(dtype, begin * strides[0]);
  part.shape.dims[0] = end - begin;
  return part;
}

TensorView TensorView::columns(std::int64_t begin, std::int64_t end) const {
  check(rank() > 0 && begin >= 0 && begin <= end && end <= dim(-1), "columns [", begin, ", ", end,
        ") of shape ", to_string(shape));
  TensorView part = *this;
  if (part.data != nullptr) part.data += bytes_of(dtype, begin * stride(-1));
  part.shape.dims[rank() - 1] = end - begin;
  return part;
}

TensorView TensorView::reshape(const Shape& sizes) const {
  check(is_contiguous() && sizes.numel() == numel(), "cannot view ", to_string(shape), " as ",
        to_string(sizes));
  return TensorView(data, sizes, dtype, device);
}

Tensor copied_to(TensorView tensor, Device device) {
  check(tensor.is_contiguous(), "only contiguous tensors are copied");
  Tensor copy(tensor.shape, tensor.dtype, {.device = device});
  const auto bytes = static_cast<std::size_t>(tensor.bytes());
  if constexpr (cuda::kBuilt) {
    if (!device.is_cpu() || !tensor.device.is_cpu()) {
      cuda::copy_now(copy.view().data, tensor.data, bytes);
      return copy;
    }
  }
  std::memcpy(copy.view().data, tensor.data, bytes);
  return copy;
}

void check_tensor(const TensorView& tensor, const Shape& shape, DType dtype, const char* what) {
  bool same = tensor.rank() == shape.rank && tensor.dtype == dtype;
  for (int i = 0; same && i < shape.rank; ++i)
    same = shape.dims[i] == -1 || shape.dims[i] == tensor.shape.dims[i];
  if (same) return;  // the message would cost more than many a kernel
  check(false, what, " has shape ", to_string(tensor.shape), " and type ", name(tensor.dtype),
        ", expected ", to_string(shape), " and ", name(dtype));
}

}  // namespace minisgl
