// TensorView: a cheap description of memory that somebody else owns. Tensor: one that owns it.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace minisgl {

constexpr int kMaxRank = 4;

/// Sizes of up to four dimensions.
struct Shape {
  std::array<std::int64_t, kMaxRank> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : rank(static_cast<int>(sizes.size())) {  // NOLINT
    check(sizes.size() <= kMaxRank, "a tensor has at most four dimensions");
    int i = 0;
    for (const std::int64_t size : sizes) dims[i++] = size;
  }
  std::int64_t operator[](int i) const { return dims[i < 0 ? i + rank : i]; }
  std::int64_t numel() const {
    std::int64_t product = 1;
    // A constant bound: with `rank` g++ 12 warns of uninitialised sizes.
    for (int i = 0; i < kMaxRank; ++i) product *= i < rank ? dims[i] : 1;
    return product;
  }
  bool operator==(const Shape&) const = default;
};

/// "[3, 576]"
std::string to_string(const Shape& shape);

/// Trivially copyable, passed by value; does not own `data`. Strides are in elements; a block type
/// is contiguous in its last dimension. A default-constructed view is empty ("no such tensor").
struct TensorView {
  std::byte* data = nullptr;
  Shape shape;
  std::array<std::int64_t, kMaxRank> strides{};
  DType dtype = DType::kF32;
  Device device;

  TensorView() = default;
  /// Contiguous, row-major.
  TensorView(void* memory, const Shape& sizes, DType type, Device where = kCpu)
      : data(static_cast<std::byte*>(memory)), shape(sizes), dtype(type), device(where) {
    std::int64_t stride = 1;
    for (int i = sizes.rank - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= sizes.dims[i];
    }
  }

  bool empty() const { return shape.rank == 0; }
  int rank() const { return shape.rank; }
  std::int64_t dim(int i) const { return shape[i]; }
  std::int64_t stride(int i) const { return strides[i < 0 ? i + shape.rank : i]; }
  std::int64_t numel() const { return shape.numel(); }
  /// Bytes of the elements (contiguous views).
  std::int64_t bytes() const { return bytes_of(dtype, numel()); }
  bool is_contiguous() const;

  /// The first element, as T, which must be the C++ type of dtype.
  template <class T>
  T* as() const {
    check(DTypeOf<T>::value == dtype, "expected ", name(DTypeOf<T>::value), ", not ", name(dtype));
    return reinterpret_cast<T*>(data);
  }

  /// Rows [begin, end) of the first dimension.
  TensorView slice(std::int64_t begin, std::int64_t end) const;
  /// Columns [begin, end) of the last dimension.
  TensorView columns(std::int64_t begin, std::int64_t end) const;
  /// The same elements in another shape (contiguous views).
  TensorView reshape(const Shape& sizes) const;
};
static_assert(std::is_trivially_copyable_v<TensorView>);

/// Owns zeroed memory; move-only.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Shape& shape, DType dtype, BufferOptions options = {})
      : buffer_(static_cast<std::size_t>(bytes_of(dtype, shape.numel())), options),
        view_(buffer_.data(), shape, dtype, options.device) {}

  const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }  // NOLINT: a Tensor is used wherever a view is

 private:
  Buffer buffer_;
  TensorView view_;
};

/// A copy of `tensor` (contiguous) in the memory of `device`; waits for it.
Tensor copied_to(TensorView tensor, Device device);

/// Throws Error saying what was expected and found unless `tensor` has this shape and type.
/// `what` names the tensor; a dimension of -1 matches any size.
void check_tensor(const TensorView& tensor, const Shape& shape, DType dtype, const char* what);

}  // namespace minisgl
