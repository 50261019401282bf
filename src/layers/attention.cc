#include "layers/attention.h"

#include <array>
#include <vector>

#include "attention/backend.h"
#include "comm/communicator.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "layers/norm.h"

namespace minisgl::layers {
namespace {

/// Row i of a half-split projection is row paired_rows(...)[i] of one whose heads store the pair
/// (d, d + head_dim / 2) as neighbours, as llama.cpp's converter writes them.
std::vector<std::int32_t> paired_rows(std::int64_t heads, std::int64_t head_dim) {
  std::vector<std::int32_t> order;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t d = 0; d < head_dim; ++d)
      order.push_back(static_cast<std::int32_t>(head * head_dim +
                                                (d < head_dim / 2 ? 2 * d : 2 * d - head_dim + 1)));
  return order;
}

MergedColumnLinear qkv(const Weights& w, const ModelConfig& c) {
  std::vector<std::int32_t> q_order;
  std::vector<std::int32_t> k_order;
  if (w.source().has_paired_qk_rows()) {
    q_order = paired_rows(c.num_heads, c.head_dim);
    k_order = paired_rows(c.num_kv_heads, c.head_dim);
  }
  const std::int64_t kv_size = c.num_kv_heads * c.head_dim;
  const std::array<Projection, 3> parts{{{"q_proj", c.num_heads * c.head_dim, q_order},
                                         {"k_proj", kv_size, k_order, c.num_kv_heads},
                                         {"v_proj", kv_size, {}, c.num_kv_heads}}};
  return MergedColumnLinear(w, c.hidden_size, parts, c.qkv_bias);
}

}  // namespace

RopeAttention::RopeAttention(const Weights& w, const ModelConfig& c, TensorView rope_table,
                             std::int64_t layer)
    : layer_(layer),
      num_heads_(c.num_heads / w.shard().world),
      head_dim_(c.head_dim),
      rope_table_(rope_table),
      norm_eps_(static_cast<float>(c.rms_norm_eps)),
      qkv_(qkv(w, c)),
      output_(w.scope("o_proj"), c.hidden_size, c.num_heads * c.head_dim),
      norms_projections_(c.projection_qk_norm) {
  if (!c.qk_norm && !c.projection_qk_norm) return;
  const NormWeight change{.offset = c.norm_offset};
  const std::int64_t q_heads = c.projection_qk_norm ? c.num_heads : 1;
  const std::int64_t k_heads = c.projection_qk_norm ? c.num_kv_heads : 1;
  q_norm_ = norm_weight(w.scope("q_norm"), q_heads * head_dim_, change);
  k_norm_ = norm_weight(w.scope("k_norm"), k_heads * head_dim_, change);
}

/// The norms over all query heads and over all key heads, in place.
void RopeAttention::norm_projections(TensorView qkv, ForwardContext& ctx) const {
  const std::int64_t q_size = num_heads_ * head_dim_;
  const std::int64_t k_size = (qkv.dim(1) - q_size) / 2;
  norm_projection(qkv.columns(0, q_size), q_norm_, ctx);
  norm_projection(qkv.columns(q_size, q_size + k_size), k_norm_, ctx);
}

/// The norm over all heads, of which x has this rank's, in place.
void RopeAttention::norm_projection(TensorView x, TensorView weight, ForwardContext& ctx) const {
  if (ctx.ranks == nullptr) {
    kernels::rms_norm(x, weight, norm_eps_, x, ctx.stream);
    return;
  }
  const ScratchScope scope(ctx.scratch);
  const auto bytes = [&](std::int64_t count) {
    return static_cast<std::size_t>(bytes_of(x.dtype, count));
  };
  const std::int64_t rows = x.dim(0);
  const std::int64_t width = x.dim(1);
  const std::int64_t copies = width * ctx.ranks->size() / weight.dim(0);  // ranks with equal heads
  const TensorView part = ctx.scratch.alloc({rows, width}, x.dtype);
  const TensorView all = ctx.scratch.alloc({rows, width * ctx.ranks->size()}, x.dtype);
  ctx.stream.copy_rows({part.data, bytes(width)}, {x.data, bytes(x.stride(0))}, bytes(width),
                       static_cast<std::size_t>(rows));
  gather_columns(part, all, ctx);
  // With copies of heads: one of each.
  const TensorView whole = ctx.scratch.alloc({rows, weight.dim(0)}, x.dtype);
  for (std::int64_t at = 0; at < weight.dim(0); at += width)
    ctx.stream.copy_rows({whole.data + bytes(at), bytes(weight.dim(0))},
                         {all.data + bytes(at * copies), bytes(all.dim(1))}, bytes(width),
                         static_cast<std::size_t>(rows));
  kernels::rms_norm(whole, weight, norm_eps_, whole, ctx.stream);
  const std::int64_t mine = ctx.ranks->rank() / copies * width;
  ctx.stream.copy_rows({x.data, bytes(x.stride(0))},
                       {whole.data + bytes(mine), bytes(weight.dim(0))}, bytes(width),
                       static_cast<std::size_t>(rows));
}

void RopeAttention::forward(const Normed& x, const BranchOutput& output,
                            ForwardContext& ctx) const {
  const ScratchScope scope(ctx.scratch);
  const std::int64_t tokens = x.num_tokens();
  const TensorView qkv = ctx.scratch.alloc({tokens, qkv_.out_size()}, ctx.activations);
  qkv_.forward(x, qkv, ctx);
  if (norms_projections_) norm_projections(qkv, ctx);
  const TensorView q = ctx.scratch.alloc({tokens, num_heads_, head_dim_}, ctx.activations);
  const TensorView out = ctx.scratch.alloc({tokens, num_heads_, head_dim_}, ctx.activations);
  ctx.attention.forward_with_rope({.qkv = qkv,
                                   .positions = ctx.inputs->positions,
                                   .out_locs = ctx.inputs->out_locs,
                                   .rope_table = rope_table_,
                                   .q_norm = norms_projections_ ? TensorView() : q_norm_.view(),
                                   .k_norm = norms_projections_ ? TensorView() : k_norm_.view(),
                                   .norm_eps = norm_eps_,
                                   .q = q,
                                   .kv = ctx.kv.layer(layer_)},
                                  layer_, out, ctx);
  output_.forward(out.reshape({tokens, num_heads_ * head_dim_}), output, ctx);
}

}  // namespace minisgl::layers
