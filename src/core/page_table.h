// Which token of which request lies where in the KV pool: the host's ledger.

#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/math.h"
#include "base/types.h"
#include "tensor/tensor.h"

namespace minisgl {

/// One row for each running request and a last one, the dummy row, for padding requests; one
/// column for each position. Always in token units: a backend that wants pages converts.
///
/// Invariants: within a page, consecutive positions have consecutive locations; every entry of the
/// dummy row is `dummy_loc`, which is a location of the dummy page.
class PageTable {
 public:
  /// max_seq_len_tokens is rounded up to 32 entries (128 bytes).
  PageTable(std::int32_t max_rows, std::int64_t max_seq_len_tokens, TokenLoc dummy_loc)
      : table_({max_rows + 1, round_up<std::int64_t>(max_seq_len_tokens, 32)}, DType::kI32,
               {.lazy = true}),
        dummy_row_{max_rows} {
    const std::span<TokenLoc> dummy = row(dummy_row_);
    std::fill(dummy.begin(), dummy.end(), dummy_loc);
  }

  std::span<TokenLoc> row(RowId id) { return {data(id), static_cast<std::size_t>(width())}; }
  std::span<const TokenLoc> row(RowId id) const {
    return {data(id), static_cast<std::size_t>(width())};
  }
  std::int64_t width() const { return table_.view().dim(1); }
  RowId dummy_row() const { return dummy_row_; }

 private:
  TokenLoc* data(RowId id) const { return table_.view().as<TokenLoc>() + id.value * width(); }

  Tensor table_;
  RowId dummy_row_;
};

}  // namespace minisgl
