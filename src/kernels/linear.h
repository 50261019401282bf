// Products with weight matrices, which stay quantised in memory.
// Implementations: kernels/ref, kernels/cpu. Layer: kernels (may include tensor/ and base/ only).

#pragma once

#include <cstdint>
#include <span>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// How the elements of a PackedMatrix lie in memory (kernels/cpu/pack.h). kGpuRows: bf16, row after
/// row, in the memory of a GPU.
enum class Packing : std::uint8_t { kRows, kInt4, kInt8, kFloat, kGpuRows };

/// A weight matrix [rows, cols] in the order in which the kernels read it. Move-only.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(std::int64_t rows, std::int64_t cols, DType dtype, Packing packing, Buffer data)
      : rows_(rows), cols_(cols), dtype_(dtype), packing_(packing), data_(std::move(data)) {}
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }  ///< of the source
  Packing packing() const { return packing_; }
  const std::byte* data() const { return data_.data(); }
  std::size_t bytes() const { return data_.size(); }
  bool empty() const { return rows_ == 0; }
  Device device() const { return data_.device(); }

 private:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  DType dtype_ = DType::kF32;
  Packing packing_ = Packing::kRows;
  Buffer data_;
};

/// Repacks `weight` [rows, cols] (f32, f16, bf16 or any block type; host memory, contiguous rows)
/// for this machine's kernels, on `pool`. Row i of the result is row row_order[i] of `weight`
/// (empty: the same order). The values do not change.
PackedMatrix pack_matrix(TensorView weight, std::span<const std::int32_t> row_order,
                         ThreadPool& pool);

/// y[m, offset_s + n] = sum_k x[m, k] * w_s[n, k] (+ bias[offset_s + n]), where the matrices w_s
/// lie one after the other in the columns of y: up to 8 matrices, whose types may differ, as one
/// product.
///
/// Shapes   x [M, K] f32, y [M, N = sum of rows] f32 (rows of both may be strided), bias [N] f32 or
///          empty
/// Order    every y[m, n] is summed over k in one order that depends on the packing and the
///          instruction set alone: not on M, the number of threads or the other rows.
/// Timing   enqueued on `stream`; does not allocate and does not synchronise.
/// Errors   Error if shapes or types disagree. M == 0 is a no-op.
void linear(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
            TensorView y, Stream& stream);

/// y[t, :] = table[ids[t], :] as f32. ids [T] i32, y [T, cols] f32. Exact.
void embedding(TensorView ids, const PackedMatrix& table, TensorView y, Stream& stream);

}  // namespace minisgl::kernels
