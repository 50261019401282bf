// Memory for the arguments that a backend makes of a batch: staging on the host and its copy on the
// device, reused from step to step.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl {

/// One step's int32 arguments, laid one after the other in one block, so that they travel in one
/// copy.
class ArgumentBlock {
 public:
  ArgumentBlock(std::int64_t capacity, Device device)
      : staging_({capacity}, DType::kI32, {.lazy = true, .pinned_for = device}),
        memory_({capacity}, DType::kI32, {.device = device, .lazy = true}) {}

  struct Array {
    std::span<std::int32_t> host;  ///< what upload() will copy
    TensorView device;
  };

  /// The next array, of this shape; 64-byte aligned. Throws Error if the block is full.
  Array add(const Shape& shape);
  /// The same without staging: for an array that the device makes itself. Only after the last
  /// add().
  TensorView add_on_device(const Shape& shape);
  /// Starts the copy of all that was added. The block must not be cleared before it was reached.
  void upload(Stream& stream);
  void clear() { used_ = to_copy_ = 0; }

 private:
  Tensor staging_;
  Tensor memory_;
  std::int64_t used_ = 0;
  std::int64_t to_copy_ = 0;
};

/// Lends blocks. Grows to the number of blocks that are lent at once and allocates nothing after
/// that. Thread-safe; outlives its leases because they share it.
class ArgumentPool : public std::enable_shared_from_this<ArgumentPool> {
 public:
  /// `capacity`: int32s of a block.
  ArgumentPool(std::int64_t capacity, Device device) : capacity_(capacity), device_(device) {}

  /// Gives its block back when it is destroyed.
  class Lease {
   public:
    Lease(std::shared_ptr<ArgumentPool> pool, ArgumentBlock* block)
        : pool_(std::move(pool)), block_(block) {}
    ~Lease() {
      if (pool_ != nullptr) pool_->give_back(block_);
    }
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ArgumentBlock* operator->() const { return block_; }

   private:
    std::shared_ptr<ArgumentPool> pool_;
    ArgumentBlock* block_;
  };

  Lease lend();
  std::size_t num_blocks() const;

 private:
  void give_back(ArgumentBlock* block);

  std::int64_t capacity_;
  Device device_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ArgumentBlock>> blocks_;
  std::vector<ArgumentBlock*> free_;
};

}  // namespace minisgl
