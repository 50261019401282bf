// Projections: y = x W^T (+ b).

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/forward.h"
#include "layers/weights.h"

namespace minisgl::layers {

/// y = x W^T (+ bias), of the matrices one after the other: kernels::linear() in the arithmetic
/// that the context asks for. Every product of activations with weights goes through here.
void multiply(TensorView x, std::span<const kernels::PackedMatrix* const> weights, TensorView bias,
              TensorView y, ForwardContext& ctx);

/// y = the sum of all ranks' y, where there is more than one.
void sum_over_ranks(TensorView y, ForwardContext& ctx);

/// y = the ranks' parts [num_rows, width], one beside the other. y [num_rows, N]: what is beyond N
/// is dropped.
void gather_columns(TensorView part, TensorView y, ForwardContext& ctx);

/// One part of a merged projection: its weight is `name`.weight [out, in].
struct Projection {
  std::string_view name;
  std::int64_t out = 0;
  std::span<const std::int32_t> row_order = {};  ///< see Weights::matrix
  std::int64_t parts = 0;  ///< the most that `out` may be divided into; 0: any number of rows
};

/// Several projections of the same input, computed as one product; each rank has its share of the
/// outputs of each.
class MergedColumnLinear {
 public:
  /// Takes `name`.weight (and `name`.bias when `has_bias`) of each part from `w`.
  MergedColumnLinear(const Weights& w, std::int64_t in, std::span<const Projection> parts,
                     bool has_bias);

  /// x [num_tokens, in] -> y [num_tokens, out_size()], the parts one after the other.
  void forward(TensorView x, TensorView y, ForwardContext& ctx) const;
  std::int64_t out_size() const { return out_size_; }

 private:
  std::vector<kernels::PackedMatrix> parts_;
  std::vector<const kernels::PackedMatrix*> pointers_;
  Tensor bias_;
  std::int64_t out_size_ = 0;
};

/// A projection whose input is divided over the ranks: the results are summed over them.
class RowLinear {
 public:
  /// Takes weight [out, in] from `w`.
  RowLinear(const Weights& w, std::int64_t out, std::int64_t in);

  /// x [num_tokens, in / ranks] -> y [num_tokens, out], the same on all ranks.
  void forward(TensorView x, TensorView y, ForwardContext& ctx) const;

 private:
  kernels::PackedMatrix weight_;
};

}  // namespace minisgl::layers
