// Where keys and values live, as kernels see it.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "tensor/dtype.h"

namespace minisgl {

/// Keys and values of one layer. The element (loc, head, d) of the keys is at
/// k[loc * slot_stride + head * head_stride + d], the values alike; strides in elements.
/// A loc is page * page_size + offset; loc num_slots - page_size is the first of the dummy page.
struct KvView {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType dtype = DType::kF32;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int64_t slot_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t num_slots = 0;  ///< pages (the dummy page included) * page_size
  std::int32_t page_size = 1;
};

/// All layers: layer i lies layer_bytes * i further.
struct KvCacheView {
  KvView first;
  std::int64_t layer_bytes = 0;
  std::int32_t num_layers = 0;

  KvView layer(std::int64_t i) const {
    KvView view = first;
    if (view.k != nullptr) {
      view.k += i * layer_bytes;
      view.v += i * layer_bytes;
    }
    return view;
  }
};

}  // namespace minisgl
