// A look at tensors out of a hostile file.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "input.h"
#include "tensor/tensor.h"

namespace minisgl::fuzz {

/// Reads every byte of `tensors` and aborts when they are larger than what they came out of.
inline void check_tensors(const std::map<std::string, TensorView, std::less<>>& tensors,
                          std::size_t file_bytes) {
  std::int64_t total = 0;
  unsigned int sum = 0;
  for (const auto& [name, tensor] : tensors) {
    total += tensor.bytes();
    require(tensor.bytes() >= 0, "a negative size");
    for (std::int64_t i = 0; i < tensor.bytes(); ++i)
      sum += std::to_integer<unsigned int>(tensor.data[i]);
  }
  require(total <= static_cast<std::int64_t>(file_bytes), "tensors are larger than the file");
  require(sum <= 255U * static_cast<std::uint64_t>(total), "bytes have no such sum");
}

}  // namespace minisgl::fuzz
