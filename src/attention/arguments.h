// Steps that several backends take from the ledger to their arguments.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attention/backend.h"
#include "core/page_table.h"

namespace minisgl {

/// pages[i] = the page of token i * page_size, for as many pages as there is room: from the page
/// table's token units to pages. Division only where it does something: with page_size 1 the slice
/// is the answer. Throws Error if a page does not begin at a multiple of page_size.
void fill_pages(std::span<const TokenLoc> locs, std::int32_t page_size,
                std::span<std::int32_t> pages);

/// Enqueues view[i] = first + i * step, made by the device. i32.
void fill_ascending(TensorView view, std::int32_t first, std::int32_t step, Stream& stream);

/// `metadata` as the backend `name` made it; throws Error if another one did.
template <class Metadata>
const Metadata& metadata_of(const AttentionMetadata* metadata, std::string_view name) {
  const auto* own = dynamic_cast<const Metadata*>(metadata);
  check(own != nullptr, "the metadata of this step was made by another backend than ", name);
  return *own;
}

}  // namespace minisgl
