// The ids that travel through the engine. Numbers that must not be mixed up are of two types.

#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace minisgl {

/// An entry of the vocabulary. A plain integer: it fills arrays that kernels read.
using TokenId = std::int32_t;

/// Where a token's keys and values live in the KV pool: page * page_size + offset. A plain
/// integer, because page tables of it are what kernels read. Unit: tokens.
using TokenLoc = std::int32_t;

/// An integer that only compares and hashes.
template <class Tag, class Rep>
struct StrongId {
  Rep value{};
  auto operator<=>(const StrongId&) const = default;
};

using RowId = StrongId<struct RowTag, std::int32_t>;           ///< a row of the page table
using PageId = StrongId<struct PageTag, std::int32_t>;         ///< a page of the KV pool
using RequestId = StrongId<struct RequestTag, std::uint64_t>;  ///< in order of submission

}  // namespace minisgl

template <class Tag, class Rep>
struct std::hash<minisgl::StrongId<Tag, Rep>> {
  std::size_t operator()(const minisgl::StrongId<Tag, Rep>& id) const noexcept {
    return std::hash<Rep>()(id.value);
  }
};
