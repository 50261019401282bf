#include "layers/weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/math.h"
#include "kernels/cuda/ops.h"
#include "tensor/half.h"

namespace minisgl::layers {
namespace {

Tensor to_tensor(std::span<const float> values) {
  Tensor tensor({static_cast<std::int64_t>(values.size())}, DType::kF32);
  std::memcpy(tensor.view().data, values.data(), values.size_bytes());
  return tensor;
}

}  // namespace

VocabRange vocab_range(Shard shard, std::int64_t vocab) {
  if (shard.world == 1) return {0, vocab};
  constexpr std::int64_t kMultiple = 8;  // widths of rows that a GPU takes
  const std::int64_t part = round_up(ceil_div<std::int64_t>(vocab, shard.world), kMultiple);
  if (part * (shard.world - 1) >= vocab)
    throw Error("a vocabulary of " + std::to_string(vocab) + " tokens is too small for " +
                std::to_string(shard.world) + " ranks; use fewer (--tp)");
  return {shard.rank * part, std::min(vocab, (shard.rank + 1) * part)};
}

Weights Weights::scope(std::string_view name) const {
  Weights inner = *this;
  inner.prefix_ = full_name(name);
  return inner;
}

bool Weights::has(std::string_view name) const {
  try {
    return !load_->source.find(full_name(name)).empty();
  } catch (const Error&) {
    return true;  // it is there, and cannot be read: taking it says why
  }
}

std::string Weights::full_name(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
}

TensorView Weights::take(std::string_view name, const Shape& expected) const {
  const std::string full = full_name(name);
  load_->wanted.emplace(full, expected);
  TensorView tensor;
  try {
    tensor = load_->source.find(full);
  } catch (const Error& e) {
    if (load_->faults == nullptr) throw;
    load_->faults->unreadable.emplace_back(e.what());
    return {};
  }
  if (tensor.empty() || tensor.shape != expected) return note_fault(full, tensor, expected);
  return tensor;
}

TensorView Weights::note_fault(const std::string& name, const TensorView& tensor,
                               const Shape& expected) const {
  const std::string where = load_->source.describe();
  if (tensor.empty()) {
    if (load_->faults == nullptr)
      throw Error(where + ": tensor " + name + " " + to_string(expected) + " is missing");
    load_->faults->missing.push_back(name + " " + to_string(expected));
  } else {
    if (load_->faults == nullptr)
      throw Error(where + ": tensor " + name + " has shape " + to_string(tensor.shape) +
                  ", but the model's configuration needs " + to_string(expected));
    load_->faults->misshapen.push_back(name + " is " + to_string(tensor.shape) + ", expected " +
                                       to_string(expected));
  }
  return {};
}

void Weights::release(const TensorView& tensor) const {
  load_->source.drop(tensor);
  count(tensor);
}

void Weights::count(const TensorView& tensor) const {
  load_->bytes += tensor.bytes();
  if (load_->on_progress) load_->on_progress(load_->bytes);
}

Tensor Weights::to_device(Tensor tensor) const {
  if (load_->device.is_cpu() || tensor.view().empty()) return tensor;
  return copied_to(tensor, load_->device);
}

std::vector<float> Weights::widened(const TensorView& tensor, std::string_view name) const {
  check(!is_block_type(tensor.dtype), full_name(name),
        " is a vector and must not be quantised, but is ", minisgl::name(tensor.dtype));
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  visit_float_dtype(tensor.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;  // files do not align their tensors
      std::memcpy(&value, tensor.data + i * sizeof(T), sizeof(T));
      values[i] = to_f32(value);
    }
  });
  if (load_->dtype && *load_->dtype != DType::kF32) {
    for (float& value : values)
      value = load_->dtype == DType::kF16 ? to_f32(to_f16(value)) : to_f32(to_bf16(value));
  }
  return values;
}

Tensor Weights::vector(std::string_view name, std::int64_t size) const {
  const TensorView tensor = take(name, {size});
  if (load_->faults != nullptr) return Tensor({size}, DType::kF32);
  Tensor result = to_tensor(widened(tensor, name));
  release(tensor);
  return result;
}

Tensor Weights::vector_shard(std::string_view name, std::int64_t size) const {
  const auto [rank, world] = shard_;
  check(size % world == 0, full_name(name), " of ", size, " does not divide over ", world,
        " ranks");
  const TensorView tensor = take(name, {size});
  if (load_->faults != nullptr) return Tensor({size / world}, DType::kF32);
  const std::vector<float> values = widened(tensor, name);
  Tensor result = to_tensor(std::span(values).subspan(rank * (size / world), size / world));
  release(tensor);
  return result;
}

kernels::PackedMatrix Weights::pack(TensorView tensor, std::span<const std::int32_t> row_order,
                                    std::string_view name) const {
  if constexpr (cuda::kBuilt)
    if (!load_->device.is_cpu())
      return kernels::gpu::pack_matrix(tensor, row_order, load_->pool, load_->device,
                                       load_->gpu_dtype, full_name(name));
  return kernels::pack_matrix(tensor, load_->pool,
                              {.row_order = row_order,
                               .dtype = is_block_type(tensor.dtype) ? std::nullopt : load_->dtype,
                               .what = full_name(name),
                               .on_packed = [this](const TensorView& part) { release(part); },
                               .share = [&] { return load_->source.share(tensor); }});
}

kernels::PackedMatrix Weights::pack_part(TensorView part, const TensorView& whole,
                                         std::span<const std::int32_t> row_order,
                                         std::string_view name) const {
  const std::int64_t bytes_before = load_->bytes;
  kernels::PackedMatrix packed = pack(part, row_order, name);
  load_->bytes = bytes_before;  // of the file: another rank's part counts too
  if (packed.is_shared()) {
    count(whole);
  } else {
    release(whole);
  }
  return packed;
}

void Weights::note_undivided(const std::string& why) const {
  if (load_->faults == nullptr) throw Error(why);
  load_->faults->undivided.push_back(why);
}

kernels::PackedMatrix Weights::matrix(std::string_view name, std::int64_t out, std::int64_t in,
                                      Split split, std::span<const std::int32_t> row_order) const {
  const auto [rank, world] = shard_;
  TensorView tensor = take(name, {out, in});
  // A part ends at the end of a block: the numbers of one share a scale.
  const std::int64_t block = tensor.empty() ? 1 : info(tensor.dtype).block_elems;
  const std::int64_t divided = split == Split::kOut ? out : split == Split::kIn ? in / block : 0;
  if (divided % world != 0)
    note_undivided(full_name(name) + " [" + std::to_string(out) + ", " + std::to_string(in) + "]" +
                   (split == Split::kIn && block > 1
                        ? " of " + std::string(minisgl::name(tensor.dtype)) + " blocks of " +
                              std::to_string(block)
                        : "") +
                   " does not divide over " + std::to_string(world) + " ranks");
  if (load_->faults != nullptr) {
    const std::int64_t out_share = split == Split::kOut ? out / world : out;
    const std::int64_t in_share = split == Split::kIn ? in / world : in;
    return kernels::PackedMatrix(out_share, in_share, DType::kF32, kernels::Packing::kRows, {});
  }
  check(in % block == 0, full_name(name), " has rows of ", in, " elements, which are not whole ",
        minisgl::name(tensor.dtype), " blocks of ", block);
  const TensorView whole = tensor;
  std::vector<std::int32_t> order(row_order.begin(), row_order.end());
  if (split == Split::kOut && world > 1) {
    const std::int64_t share = out / world;
    if (order.empty()) {
      tensor = tensor.slice(rank * share, (rank + 1) * share);
    } else {
      order = {order.begin() + rank * share, order.begin() + (rank + 1) * share};
    }
  } else if (split == Split::kIn && world > 1) {
    tensor = tensor.columns(rank * (in / world), (rank + 1) * (in / world));
  }
  return pack_part(tensor, whole, order, name);
}

kernels::PackedMatrix Weights::vocab_rows(std::string_view name, std::int64_t vocab,
                                          std::int64_t in) const {
  const VocabRange rows = vocab_range(shard_, vocab);
  const TensorView whole = take(name, {vocab, in});
  if (load_->faults != nullptr)
    return kernels::PackedMatrix(rows.size(), in, DType::kF32, kernels::Packing::kRows, {});
  const std::int64_t block = info(whole.dtype).block_elems;
  check(in % block == 0, full_name(name), " has rows of ", in, " elements, which are not whole ",
        minisgl::name(whole.dtype), " blocks of ", block);
  return pack_part(whole.slice(rows.begin, rows.end), whole, {}, name);
}

}  // namespace minisgl::layers
