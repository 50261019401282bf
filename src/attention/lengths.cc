#include "attention/lengths.h"

#include <algorithm>

#include "base/check.h"

namespace minisgl {

BatchLengths measure(const Batch& batch, const AttentionShape& shape) {
  const auto num_rows = static_cast<std::int64_t>(batch.rows.size());
  check(num_rows > 0 && num_rows <= shape.max_rows, "a batch of ", num_rows,
        " rows; the backend was made for 1 to ", shape.max_rows);
  check(batch.page_table != nullptr, "a batch needs its page table");
  BatchLengths lengths;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const BatchRow& row = batch.rows[i];
    check(row.cached_len >= 0 && row.device_len > row.cached_len &&
              row.device_len <= shape.max_seq_len_tokens,
          "row ", i, " of the batch has cached_len ", row.cached_len, " and device_len ",
          row.device_len, "; expected 0 <= cached_len < device_len <= ", shape.max_seq_len_tokens);
    lengths.max_seqlen_q = std::max(lengths.max_seqlen_q, row.extend_len());
    lengths.max_seqlen_k = std::max(lengths.max_seqlen_k, row.device_len);
    lengths.any_cached |= row.cached_len > 0;
  }
  return lengths;
}

}  // namespace minisgl
