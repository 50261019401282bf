#include "attention/ragged_arrays.h"

#include "attention/arguments.h"
#include "attention/lengths.h"
#include "base/math.h"

namespace minisgl {

RaggedHost add_ragged_arrays(const Batch& batch, std::int32_t page_size, ArgumentPool::Lease& block,
                             RaggedArrays& arrays) {
  const std::span<const BatchRow> rows = batch.rows;
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  const auto qo_indptr = block->add({num_rows + 1});
  prefix_sums(rows, qo_indptr.host, [](const BatchRow& row) { return row.extend_len(); });
  const auto kv_indptr = block->add({num_rows + 1});
  prefix_sums(rows, kv_indptr.host,
              [page_size](const BatchRow& row) { return ceil_div(row.device_len, page_size); });
  const auto kv_last_page_len = block->add({num_rows});
  const auto kv_indices = block->add({kv_indptr.host[num_rows]});
  for (std::int64_t i = 0; i < num_rows; ++i) {
    kv_last_page_len.host[i] = (rows[i].device_len - 1) % page_size + 1;
    const std::int32_t begin = kv_indptr.host[i];
    fill_pages(batch.page_table->row(rows[i].row), page_size,
               kv_indices.host.subspan(begin, kv_indptr.host[i + 1] - begin));
  }
  arrays = {qo_indptr.device, kv_indptr.device, kv_indices.device, kv_last_page_len.device};
  return {qo_indptr.host, kv_indptr.host};
}

CapturedRaggedArrays::CapturedRaggedArrays(std::int64_t rows, std::int64_t pages, Device device)
    : qo_indptr({rows + 1}, DType::kI32, {.device = device}),
      kv_indptr({rows + 1}, DType::kI32, {.device = device}),
      kv_indices({rows * pages}, DType::kI32, {.device = device}),
      kv_last_page_len({rows}, DType::kI32, {.device = device}),
      pages(pages) {}

RaggedArrays CapturedRaggedArrays::first(std::int64_t rows) const {
  return {qo_indptr.view().slice(0, rows + 1), kv_indptr.view().slice(0, rows + 1),
          kv_indices.view().slice(0, rows * pages), kv_last_page_len.view().slice(0, rows)};
}

void fill_one_key_each(const RaggedArrays& arrays, Stream& stream) {
  fill_ascending(arrays.qo_indptr, /*first=*/0, /*step=*/1, stream);
  fill_ascending(arrays.kv_indptr, /*first=*/0, /*step=*/1, stream);
  fill_ascending(arrays.kv_last_page_len, /*first=*/1, /*step=*/0, stream);
  fill_ascending(arrays.kv_indices, /*first=*/0, /*step=*/0, stream);
}

}  // namespace minisgl
