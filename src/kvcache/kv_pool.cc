#include "kvcache/kv_pool.h"

#include <limits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace minisgl {
namespace {

const KvPoolConfig& checked(const KvPoolConfig& config) {
  const auto positive = [](std::int32_t value, const char* what) {
    check(value > 0, "KV pool: ", what, " is ", value, "; it must be at least 1");
  };
  positive(config.num_layers, "num_layers");
  positive(config.num_kv_heads, "num_kv_heads");
  positive(config.head_dim, "head_dim");
  positive(config.num_pages, "num_pages");
  positive(config.page_size, "page_size");
  check(config.dtype == DType::kF32 || config.dtype == DType::kF16 ||
            config.dtype == DType::kBF16 || config.dtype == DType::kF8E4M3,
        "KV pool: dtype is ", name(config.dtype), "; it must be f32, f16, bf16 or fp8_e4m3");
  const std::int64_t slots = (std::int64_t{config.num_pages} + 1) * config.page_size;
  check(slots <= std::numeric_limits<TokenLoc>::max(), "KV pool: ", config.num_pages, " pages of ",
        config.page_size, " tokens are more than 2^31 - 1 locations; choose fewer pages");
  return config;
}

}  // namespace

std::int64_t KvPool::bytes_per_page(const KvPoolConfig& config) {
  const std::int64_t elements =
      std::int64_t{config.page_size} * config.num_kv_heads * config.head_dim;
  return 2 * config.num_layers * bytes_of(config.dtype, elements);
}

KvPool::KvPool(const KvPoolConfig& config)
    : config_(checked(config)),
      buffer_(
          static_cast<std::size_t>(bytes_per_page(config) * (std::int64_t{config.num_pages} + 1)),
          {.device = config.device, .lazy = true}) {}

KvCacheView KvPool::view() const {
  KvCacheView view;
  view.num_layers = config_.num_layers;
  view.layer_bytes = bytes() / (2 * config_.num_layers);
  view.first.k = buffer_.data();
  view.first.v = buffer_.data() + bytes() / 2;
  view.first.dtype = config_.dtype;
  view.first.num_heads = config_.num_kv_heads;
  view.first.head_dim = config_.head_dim;
  view.first.head_stride = config_.head_dim;
  view.first.slot_stride = std::int64_t{config_.num_kv_heads} * config_.head_dim;
  view.first.num_slots = (std::int64_t{config_.num_pages} + 1) * config_.page_size;
  view.first.page_size = config_.page_size;
  return view;
}

}  // namespace minisgl
