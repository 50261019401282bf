// Products with the matrices of many experts, each with its own rows of the input.
// Implementation: kernels/grouped_linear.cc over the kernels of linear(). Layer: kernels.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace minisgl::kernels {

/// One projection of every expert: matrices of one shape, type and packing, one after the other in
/// a block of memory (huge pages, which a matrix of some hundred kilobytes would not get alone).
class PackedExperts {
 public:
  PackedExperts() = default;
  explicit PackedExperts(std::int64_t num_experts) : num_experts_(num_experts) {}

  /// Copies the matrix of the next expert. Throws Error unless it is like those before.
  void add(const PackedMatrix& matrix);

  std::int64_t num_experts() const { return num_experts_; }
  std::int64_t rows() const { return rows_; }  ///< of one expert
  std::int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }
  Packing packing() const { return packing_; }
  /// All experts were added.
  bool complete() const { return num_experts_ > 0 && added_ == num_experts_; }
  const std::byte* expert(std::int64_t i) const { return data_.data() + i * stride_bytes_; }

 private:
  std::int64_t num_experts_ = 0;
  std::int64_t added_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t stride_bytes_ = 0;
  DType dtype_ = DType::kF32;
  Packing packing_ = Packing::kRows;
  Buffer data_;
};

struct GroupedLinearArgs {
  TensorView x;        ///< [N, K] f32: the rows of expert 0, then those of expert 1, ...
  TensorView offsets;  ///< [num_experts + 1] i32, ascending from 0 to N: expert e has the rows
                       ///< offsets[e] .. offsets[e + 1]
  /// Up to 2 projections, side by side in the columns of y.
  std::span<const PackedExperts* const> weights;
  TensorView y;  ///< [N, sum of rows] f32
};

/// y[i, offset_s + n] = sum_k x[i, k] * w_s[e][n, k] for each row i of each expert e: every element
/// as linear() computes it, bit for bit, whatever the other rows are. Weights of experts without
/// rows are not read.
///
/// Timing   enqueued on `stream`; temporary memory from `workspace`
///          (grouped_linear_workspace_bytes); does not allocate and does not synchronise. The
///          experts must outlive the step; `offsets` is read on the stream.
/// Errors   Error if shapes or types disagree.
void grouped_linear(const GroupedLinearArgs& args, TensorView workspace, Stream& stream);

/// Bytes of workspace for `num_rows` rows. Grows with it.
std::int64_t grouped_linear_workspace_bytes(std::span<const PackedExperts* const> weights,
                                            std::int64_t num_rows);

}  // namespace minisgl::kernels
