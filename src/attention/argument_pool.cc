#include "attention/argument_pool.h"

#include "base/check.h"
#include "base/math.h"

namespace minisgl {
namespace {

constexpr std::int64_t kAlignment = 16;  // int32s in 64 bytes

}  // namespace

ArgumentBlock::Array ArgumentBlock::add(const Shape& shape) {
  check(used_ == to_copy_, "arrays that are copied come before those that are not");
  const std::int64_t begin = used_;
  const TensorView device = add_on_device(shape);
  to_copy_ = used_;
  return {{staging_.view().as<std::int32_t>() + begin, static_cast<std::size_t>(shape.numel())},
          device};
}

TensorView ArgumentBlock::add_on_device(const Shape& shape) {
  const std::int64_t end = round_up(used_ + shape.numel(), kAlignment);
  check(end <= memory_.view().numel(), "attention arguments of shape ", to_string(shape),
        " do not fit into a block of ", memory_.view().numel(), ", of which ", used_, " are used");
  const TensorView view(memory_.view().as<std::int32_t>() + used_, shape, DType::kI32,
                        memory_.view().device);
  used_ = end;
  return view;
}

void ArgumentBlock::upload(Stream& stream) {
  stream.copy(memory_.view().data, staging_.view().data,
              static_cast<std::size_t>(bytes_of(DType::kI32, to_copy_)));
}

ArgumentPool::Lease ArgumentPool::lend() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    blocks_.push_back(std::make_unique<ArgumentBlock>(capacity_, device_));
    free_.reserve(blocks_.size());  // give_back() must not allocate
    free_.push_back(blocks_.back().get());
  }
  ArgumentBlock* block = free_.back();
  free_.pop_back();
  block->clear();
  return {shared_from_this(), block};
}

std::size_t ArgumentPool::num_blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

void ArgumentPool::give_back(ArgumentBlock* block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(block);
}

}  // namespace minisgl
