#include "layers/weights.h"

#include <cstring>
#include <vector>

#include "kernels/cuda/ops.h"
#include "tensor/half.h"

namespace minisgl::layers {
namespace {

std::vector<float> widened(const TensorView& tensor, const std::string& name) {
  check(!is_block_type(tensor.dtype), name, " is a vector and must not be quantised, but is ",
        minisgl::name(tensor.dtype));
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  visit_float_dtype(tensor.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;  // files do not align their tensors
      std::memcpy(&value, tensor.data + i * sizeof(T), sizeof(T));
      values[i] = to_f32(value);
    }
  });
  return values;
}

Tensor to_tensor(std::span<const float> values) {
  Tensor tensor({static_cast<std::int64_t>(values.size())}, DType::kF32);
  std::memcpy(tensor.view().data, values.data(), values.size_bytes());
  return tensor;
}

}  // namespace

Weights Weights::scope(std::string_view name) const { return Weights(*load_, full_name(name)); }

bool Weights::has(std::string_view name) const {
  return !load_->source.find(full_name(name)).empty();
}

std::string Weights::full_name(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
}

TensorView Weights::take(std::string_view name, const Shape& expected) const {
  const std::string full = full_name(name);
  const TensorView tensor = load_->source.find(full);
  if (tensor.empty())
    throw Error(load_->source.describe() + ": tensor " + full + " " + to_string(expected) +
                " is missing");
  if (tensor.shape != expected)
    throw Error(load_->source.describe() + ": tensor " + full + " has shape " +
                to_string(tensor.shape) + ", but the model's configuration needs " +
                to_string(expected));
  load_->used.insert(full);
  return tensor;
}

void Weights::release(const TensorView& tensor) const {
  load_->source.drop(tensor);
  load_->bytes += tensor.bytes();
  if (load_->on_progress) load_->on_progress(load_->bytes);
}

Tensor Weights::to_device(Tensor tensor) const {
  return load_->device.is_cpu() ? std::move(tensor) : copied_to(tensor, load_->device);
}

Tensor Weights::vector(std::string_view name, std::int64_t size) const {
  const TensorView tensor = take(name, {size});
  Tensor result = to_device(to_tensor(widened(tensor, full_name(name))));
  release(tensor);
  return result;
}

Tensor Weights::vector_shard(std::string_view name, std::int64_t size) const {
  const auto [rank, world] = load_->shard;
  check(size % world == 0, full_name(name), " of ", size, " does not divide over ", world,
        " ranks");
  const TensorView tensor = take(name, {size});
  const std::vector<float> values = widened(tensor, full_name(name));
  Tensor result = to_tensor(std::span(values).subspan(rank * (size / world), size / world));
  release(tensor);
  return result;
}

kernels::PackedMatrix Weights::pack(TensorView tensor,
                                    std::span<const std::int32_t> row_order) const {
  if constexpr (cuda::kBuilt)
    if (!load_->device.is_cpu())
      return kernels::gpu::pack_matrix(tensor, row_order, load_->pool, load_->device);
  return kernels::pack_matrix(tensor, row_order, load_->pool);
}

kernels::PackedMatrix Weights::matrix(std::string_view name, std::int64_t out, std::int64_t in,
                                      Split split, std::span<const std::int32_t> row_order) const {
  const auto [rank, world] = load_->shard;
  TensorView tensor = take(name, {out, in});
  const TensorView whole = tensor;
  const std::int64_t block = info(tensor.dtype).block_elems;
  check(in % block == 0, full_name(name), " has rows of ", in, " elements, which are not whole ",
        minisgl::name(tensor.dtype), " blocks of ", block);
  std::vector<std::int32_t> order(row_order.begin(), row_order.end());
  if (split == Split::kOut && world > 1) {
    check(out % world == 0, full_name(name), " with ", out, " rows does not divide over ", world,
          " ranks");
    const std::int64_t share = out / world;
    if (order.empty()) {
      tensor = tensor.slice(rank * share, (rank + 1) * share);
    } else {
      order = {order.begin() + rank * share, order.begin() + (rank + 1) * share};
    }
  } else if (split == Split::kIn && world > 1) {
    check(in % (world * block) == 0, full_name(name), " with ", in, " columns in blocks of ", block,
          " does not divide over ", world, " ranks");
    tensor = tensor.columns(rank * (in / world), (rank + 1) * (in / world));
  }
  kernels::PackedMatrix packed = pack(tensor, order);
  release(whole);
  return packed;
}

}  // namespace minisgl::layers
