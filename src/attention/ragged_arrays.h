// FlashInfer's ragged form of a batch: what the backends `fi` of CPUs and GPUs share.

#pragma once

#include <cstdint>
#include <span>

#include "attention/argument_pool.h"
#include "attention/backend.h"

namespace minisgl {

/// All arrays are i32.
struct RaggedArrays {
  TensorView qo_indptr;         ///< [rows + 1], prefix sums of extend_len (tokens)
  TensorView kv_indptr;         ///< [rows + 1], prefix sums of the rows' numbers of pages
  TensorView kv_indices;        ///< [kv_indptr[rows]], each row's pages, one row after the other
  TensorView kv_last_page_len;  ///< [rows], tokens in each row's last page: 1 .. page_size
};

/// Where plans read what was laid out: in the staging memory of the block.
struct RaggedHost {
  std::span<std::int32_t> qo_indptr, kv_indptr;  ///< [rows + 1] each
};

/// Adds the arrays of `batch` to `block` and enters them in `arrays`.
RaggedHost add_ragged_arrays(const Batch& batch, std::int32_t page_size, ArgumentPool::Lease& block,
                             RaggedArrays& arrays);

/// The arrays that graphs of decode steps read, for the largest of them.
struct CapturedRaggedArrays {
  Tensor qo_indptr, kv_indptr, kv_indices, kv_last_page_len;
  std::int64_t pages = 0;  ///< of a row, at most

  CapturedRaggedArrays() = default;
  CapturedRaggedArrays(std::int64_t rows, std::int64_t pages, Device device);
  /// The first `rows` rows.
  RaggedArrays first(std::int64_t rows) const;
};

/// Enqueues that every row has one query and one key, in page 0.
void fill_one_key_each(const RaggedArrays& arrays, Stream& stream);

}  // namespace minisgl
