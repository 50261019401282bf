// What every backend derives from the rows of a batch.

#pragma once

#include <cstdint>
#include <span>

#include "attention/backend.h"

namespace minisgl {

/// Maxima over the rows of a batch, padding included.
struct BatchLengths {
  std::int32_t max_seqlen_q = 0;  ///< extend_len
  std::int32_t max_seqlen_k = 0;  ///< device_len
  bool any_cached = false;        ///< some row has a cached prefix
};

/// Throws Error naming the row if there are more rows or tokens than `shape` allows, or a row has
/// nothing to compute.
BatchLengths measure(const Batch& batch, const AttentionShape& shape);

/// sums[0] = 0, sums[i + 1] = sums[i] + length(rows[i]).
template <class Length>
void prefix_sums(std::span<const BatchRow> rows, std::span<std::int32_t> sums,
                 const Length& length) {
  sums[0] = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i + 1] = sums[i] + length(rows[i]);
}

}  // namespace minisgl
