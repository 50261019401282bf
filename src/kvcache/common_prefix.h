#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/types.h"

namespace minisgl {

/// Number of tokens at which `a` and `b` begin alike.
///
/// Compares 64 tokens (256 bytes) at a time with memcmp, which the C library vectorises; compilers
/// do not vectorise a loop that leaves early.
inline std::size_t common_prefix_len(std::span<const TokenId> a, std::span<const TokenId> b) {
  constexpr std::size_t kBlock = 64;
  const std::size_t end = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i + kBlock <= end && std::memcmp(&a[i], &b[i], kBlock * sizeof(TokenId)) == 0) i += kBlock;
  while (i < end && a[i] == b[i]) ++i;
  return i;
}

}  // namespace minisgl
