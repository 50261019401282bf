#include "layers/linear.h"

#include <algorithm>
#include <cstring>

#include "comm/communicator.h"
#include "kernels/cuda/ops.h"

namespace minisgl::layers {
namespace {

void multiply_fused(const Normed& x, const kernels::PackedMatrix& weight, TensorView bias,
                    kernels::gpu::Into into, TensorView y, ForwardContext& ctx) {
  if constexpr (cuda::kBuilt) {
    const kernels::gpu::FusedLinear args{
        .x = x.x,
        .norm = x.norm != nullptr ? x.norm->weight() : TensorView{},
        .eps = x.norm != nullptr ? x.norm->eps() : 0,
        .x_rows = x.rows,
        .weight = &weight,
        .bias = bias,
        .into = into,
        .y = y};
    const ScratchScope scope(ctx.scratch);
    const TensorView workspace =
        ctx.scratch.alloc({kernels::gpu::fused_linear_workspace_bytes(args)}, DType::kU8);
    kernels::gpu::fused_linear(args, workspace, ctx.stream);
  } else {
    check(false, "products of this device do not fuse");
  }
}

}  // namespace

bool fuses_products(const ForwardContext& ctx) {
  return cuda::kBuilt && !ctx.stream.device().is_cpu() && ctx.activations == DType::kBF16;
}

void multiply(TensorView x, std::span<const kernels::PackedMatrix* const> weights, TensorView bias,
              TensorView y, ForwardContext& ctx) {
  if (ctx.compute == Compute::kExact) {
    kernels::linear(x, weights, bias, y, ctx.stream);
    return;
  }
  const ScratchScope scope(ctx.scratch);
  const TensorView workspace = ctx.scratch.alloc(x.shape, DType::kF32);
  kernels::linear_bf16(x, weights, bias, y, workspace, ctx.stream);
}

void multiply(const Normed& x, const kernels::PackedMatrix& weight, TensorView y,
              ForwardContext& ctx) {
  if (x.norm != nullptr) {
    multiply_fused(x, weight, {}, kernels::gpu::Into::kStore, y, ctx);
    return;
  }
  const kernels::PackedMatrix* const matrix = &weight;
  multiply(x.x, {&matrix, 1}, {}, y, ctx);
}

void sum_over_ranks(TensorView y, ForwardContext& ctx) {
  if (ctx.ranks != nullptr) ctx.ranks->all_reduce(y, ctx.stream);
}

void gather_columns(TensorView part, TensorView y, ForwardContext& ctx) {
  const ScratchScope scope(ctx.scratch);
  const std::int64_t rows = part.dim(0);
  const std::int64_t width = part.dim(1);
  const TensorView parts = ctx.scratch.alloc({ctx.ranks->size(), rows * width}, part.dtype);
  ctx.ranks->all_gather(part, parts, ctx.stream);
  const auto bytes = [&](std::int64_t count) {
    return static_cast<std::size_t>(bytes_of(part.dtype, count));
  };
  for (int rank = 0; rank < ctx.ranks->size(); ++rank) {
    const std::int64_t begin = rank * width;
    const std::int64_t end = std::min(begin + width, y.dim(1));
    if (begin >= end) break;
    const std::byte* from = parts.data + bytes(begin * rows);
    ctx.stream.copy_rows({y.data + bytes(begin), bytes(y.stride(0))}, {from, bytes(width)},
                         bytes(end - begin), static_cast<std::size_t>(rows));
  }
}

namespace {

Weights scope_of(const Weights& w, const Projection& part) {
  const Weights scope = w.scope(part.name);
  return part.parts == 0 ? scope : scope.with_shard(shard_of_parts(w.shard(), part.parts));
}

}  // namespace

MergedColumnLinear::MergedColumnLinear(const Weights& w, std::int64_t in,
                                       std::span<const Projection> parts, bool has_bias) {
  parts_.reserve(parts.size());
  for (const Projection& part : parts) {
    parts_.push_back(scope_of(w, part).matrix("weight", part.out, in, Split::kOut, part.row_order));
    out_size_ += parts_.back().rows();
  }
  if constexpr (cuda::kBuilt) {
    if (parts_.size() > 1 && parts_[0].packing() == kernels::Packing::kGpuRows) {
      // One product of one matrix: a GPU's kernels cannot start in the middle of a tile.
      kernels::PackedMatrix whole = kernels::gpu::concatenate_rows(parts_);
      parts_.clear();
      parts_.push_back(std::move(whole));
    }
  }
  for (const kernels::PackedMatrix& part : parts_) pointers_.push_back(&part);
  if (!has_bias) return;
  bias_ = Tensor({out_size_}, DType::kF32);
  float* out = bias_.view().as<float>();
  for (const Projection& part : parts) {
    const Tensor share = scope_of(w, part).vector_shard("bias", part.out);
    std::memcpy(out, share.view().data, static_cast<std::size_t>(share.view().bytes()));
    out += share.view().numel();
  }
  bias_ = w.to_device(std::move(bias_));
}

void MergedColumnLinear::forward(const Normed& x, TensorView y, ForwardContext& ctx) const {
  if (x.norm == nullptr) {
    multiply(x.x, pointers_, bias_, y, ctx);
  } else {
    multiply_fused(x, parts_.front(), bias_, kernels::gpu::Into::kStore, y, ctx);
  }
}

void MergedColumnLinear::forward_gated(const Normed& x, Activation activation, TensorView y,
                                       ForwardContext& ctx) const {
  multiply_fused(
      x, parts_.front(), bias_,
      activation == Activation::kSilu ? kernels::gpu::Into::kSilu : kernels::gpu::Into::kGelu, y,
      ctx);
}

RowLinear::RowLinear(const Weights& w, std::int64_t out, std::int64_t in)
    : weight_(w.matrix("weight", out, in, Split::kIn)) {}

void RowLinear::forward(TensorView x, const BranchOutput& output, ForwardContext& ctx) const {
  if (output.is_added) {
    multiply_fused(x, weight_, {}, kernels::gpu::Into::kAdd, output.y, ctx);
    return;
  }
  const kernels::PackedMatrix* const weight = &weight_;
  multiply(x, {&weight, 1}, {}, output.y, ctx);
  sum_over_ranks(output.y, ctx);
}

}  // namespace minisgl::layers
