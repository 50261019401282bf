// Products with weight matrices, which stay quantised in memory.
// Implementations: kernels/ref, kernels/cpu. Layer: kernels (may include tensor/ and base/ only).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// How the elements of a PackedMatrix lie in memory (kernels/cpu/pack.h). kGpuRows: bf16 or f16, as
/// dtype() says, row after row, in the memory of a GPU.
enum class Packing : std::uint8_t { kRows, kInt4, kInt8, kFloat, kGpuRows };

/// A weight matrix [rows, cols] in the order in which the kernels read it. Move-only.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(std::int64_t rows, std::int64_t cols, DType dtype, Packing packing, Buffer data)
      : rows_(rows), cols_(cols), dtype_(dtype), packing_(packing), data_(std::move(data)) {}
  /// Rows as they lie in somebody's memory, which `owner` keeps.
  PackedMatrix(std::int64_t rows, std::int64_t cols, DType dtype, std::span<const std::byte> data,
               std::shared_ptr<const void> owner)
      : rows_(rows), cols_(cols), dtype_(dtype), shared_(data), owner_(std::move(owner)) {}
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }  ///< of the source; of kGpuRows: of the elements
  Packing packing() const { return packing_; }
  const std::byte* data() const { return owner_ ? shared_.data() : data_.data(); }
  std::size_t bytes() const { return owner_ ? shared_.size() : data_.size(); }
  /// Whether the memory is that of the source.
  bool is_shared() const { return owner_ != nullptr; }
  bool empty() const { return rows_ == 0; }
  Device device() const { return data_.device(); }

 private:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  DType dtype_ = DType::kF32;
  Packing packing_ = Packing::kRows;
  Buffer data_;
  std::span<const std::byte> shared_;
  std::shared_ptr<const void> owner_;
};

struct PackOptions {
  /// Row i of the result is row row_order[i] of the source; empty: the same order.
  std::span<const std::int32_t> row_order = {};
  /// Numbers of a plain type are rounded to this one; without it, and for block types, the values
  /// do not change.
  std::optional<DType> dtype = std::nullopt;
  std::string_view what = "a weight";  ///< begins errors about the values
  /// Called with rows of the source, in order and without gaps, that will not be read again, so
  /// that a large mapped file need not stay in memory beside its copy. Not called, or not for all
  /// rows, when rows are not read in order.
  std::function<void(const TensorView& rows)> on_packed = {};
  /// Asked for the owner of the weight's memory when its rows can be used as they lie: the result
  /// then refers to them. Without it, or when it gives none, they are copied.
  std::function<std::shared_ptr<const void>()> share = {};
};

/// Repacks `weight` [rows, cols] (f32, f16, bf16 or any block type; host memory, contiguous in its
/// columns) for this machine's kernels, on `pool`. Throws Error for a type or shape that no weight
/// has, or when a number is beyond the range of options.dtype.
PackedMatrix pack_matrix(TensorView weight, ThreadPool& pool, const PackOptions& options);
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

/// linear() of x rounded to the nearest bf16, ties to even; the products are exact and summed in
/// f32. Where the machine has an instruction for it and all weights are bf16, each pair of products
/// is rounded as that instruction does, and subnormal numbers count as zero: another order of
/// summation than linear()'s, but likewise one that depends on nothing but packing and machine.
///
/// Shapes   as linear(); workspace [M, K] f32, whose content is lost
void linear_bf16(TensorView x, std::span<const PackedMatrix* const> weights, TensorView bias,
                 TensorView y, TensorView workspace, Stream& stream);

/// y = x rounded to the nearest bf16, ties to even, as f32 numbers. x, y [rows, cols] f32, their
/// columns contiguous; y may be x. Enqueued; does not allocate.
void round_to_bf16(TensorView x, TensorView y, Stream& stream);

/// y[t, :] = table[ids[t], :] as f32. ids [T] i32, y [T, cols] f32. Exact.
void embedding(TensorView ids, const PackedMatrix& table, TensorView y, Stream& stream);

/// embedding() of a table whose first row is that of token `first_id`: ids before it and behind the
/// last row give zeros. The sum over the ranks that divide a table is the whole table's row,
/// exactly.
void embedding_part(TensorView ids, const PackedMatrix& table, std::int64_t first_id, TensorView y,
                    Stream& stream);

}  // namespace minisgl::kernels
