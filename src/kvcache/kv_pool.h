// The memory of all keys and values.

#pragma once

#include <cstdint>

#include "tensor/buffer.h"
#include "tensor/kv_view.h"

namespace minisgl {

/// Sizes of a KvPool; the heads are those of one rank.
struct KvPoolConfig {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t num_pages = 0;  ///< pages that requests may hold; the dummy page comes on top
  std::int32_t page_size = 1;  ///< tokens
  DType dtype = DType::kF32;   ///< f32, f16, bf16 or fp8_e4m3
  Device device = kCpu;
};

/// Layout (2, layers, num_pages + 1, page_size, kv_heads, head_dim), keys first. The last page,
/// with index num_pages, is the dummy page: padding rows read and write it, no request ever does.
///
/// The block is reserved at once and becomes memory page by page as it is written (on a CPU), so a
/// generous num_pages costs addresses only. Source: mini-sglang kvcache/mha_pool.py.
class KvPool {
 public:
  /// Throws Error naming the field if a size is not positive, if the locations do not fit 31 bits,
  /// or if there is no memory.
  explicit KvPool(const KvPoolConfig& config);

  /// Bytes that one page takes in all layers, keys and values together.
  static std::int64_t bytes_per_page(const KvPoolConfig& config);

  const KvPoolConfig& config() const { return config_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(buffer_.size()); }

  /// Valid as long as the pool lives.
  KvCacheView view() const;

 private:
  KvPoolConfig config_;
  Buffer buffer_;
};

}  // namespace minisgl
