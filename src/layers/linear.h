// Projections: y = x W^T (+ b).

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/forward.h"
#include "core/model_config.h"
#include "layers/norm.h"
#include "layers/weights.h"

namespace minisgl::layers {

/// y = x W^T (+ bias), of the matrices one after the other: kernels::linear() in the arithmetic
/// that the context asks for. Every product of activations with weights goes through here.
void multiply(TensorView x, std::span<const kernels::PackedMatrix* const> weights, TensorView bias,
              TensorView y, ForwardContext& ctx);

/// What a projection reads: activations; or, where products fuse, the residual stream that it
/// normalises first.
struct Normed {
  Normed(TensorView activations) : x(activations) {}  // NOLINT: any activations will do
  Normed(TensorView residual, const RmsNorm& by, TensorView only = {})
      : x(residual), norm(&by), rows(only) {}
  std::int64_t num_tokens() const { return rows.empty() ? x.dim(0) : rows.dim(0); }

  TensorView x;                   ///< [num_tokens, in]; f32 with a norm
  const RmsNorm* norm = nullptr;  ///< of x; null: none
  TensorView rows = {};           ///< with a norm: [num_tokens] i32, which rows of x; empty: all
};

/// Where a branch of a layer leaves its result.
struct BranchOutput {
  TensorView y;           ///< [num_tokens, hidden]
  bool is_added = false;  ///< y is the residual stream, f32, and the result is added to it
};

/// Whether this device's products take a norm before and an addition or an activation after them
/// (kernels::gpu::fused_linear()); where they do not, each is a pass of its own.
bool fuses_products(const ForwardContext& ctx);

/// The same of one matrix, with a norm before it where products fuse.
void multiply(const Normed& x, const kernels::PackedMatrix& weight, TensorView y,
              ForwardContext& ctx);

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
  void forward(const Normed& x, TensorView y, ForwardContext& ctx) const;
  /// Of a gate and an up projection where products fuse: y [num_tokens, out_size() / 2] =
  /// activation(gate(x)) * up(x).
  void forward_gated(const Normed& x, Activation activation, TensorView y,
                     ForwardContext& ctx) const;
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

  /// x [num_tokens, in / ranks] -> output [num_tokens, out], the same on all ranks.
  void forward(TensorView x, const BranchOutput& output, ForwardContext& ctx) const;

 private:
  kernels::PackedMatrix weight_;
};

}  // namespace minisgl::layers
