// Steps that several backends take from the ledger to their arguments.

#pragma once

#include <cstdint>
#include <map>
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

/// Throws Error unless graphs for `batch_sizes` (ascending) are of a row and a token at least.
void check_capture(std::span<const std::int32_t> batch_sizes, std::int64_t max_seq_len_tokens);

/// What of a step has to fit a graph.
struct StepSize {
  std::int64_t rows = 0;
  std::int32_t max_seqlen_q = 0;
  std::int32_t max_seqlen_k = 0;
};

/// Throws Error unless `step` has `batch_size` rows, one query each and no more keys than that.
void check_replay(const StepSize& step, std::int32_t batch_size, std::int64_t max_seq_len_tokens);

/// What the backend `name` captured for graphs of `batch_size` rows. Throws Error if it did not.
template <class Metadata>
const Metadata& captured_for(std::int32_t batch_size,
                             const std::map<std::int32_t, Metadata>& captured,
                             std::string_view name) {
  const auto found = captured.find(batch_size);
  check(found != captured.end(), "the attention backend ", name, " has no graph buffers for ",
        batch_size, " rows");
  return found->second;
}

}  // namespace minisgl
