#pragma once

#include "core/forward.h"
#include "core/model_config.h"
#include "layers/linear.h"

namespace minisgl::layers {

/// Self-attention with rotary positions over the paged KV cache; tensor-parallel over heads (where
/// key heads are fewer than ranks, several ranks hold the same one). It knows neither the batch's
/// shape nor the attention backend: both are in the context.
///
/// Weights  q_proj [heads * head_dim, hidden], k_proj, v_proj [kv_heads * head_dim, hidden] (one
///          product; with biases if the architecture has them), o_proj [hidden, heads * head_dim],
///          q_norm, k_norm [head_dim] or [heads * head_dim] if the architecture has them
/// Source   mini-sglang layers/attention.py, models/utils.py RopeAttn.
class RopeAttention {
 public:
  /// `rope_table` is kernels::make_rope_table()'s, or empty for a layer without rope; it must
  /// outlive the layer.
  RopeAttention(const Weights& w, const ModelConfig& config, TensorView rope_table,
                std::int64_t layer);

  /// x [num_tokens, hidden] -> output [num_tokens, hidden], whose memory may be x's. Writes this
  /// layer's keys and values of the new tokens.
  void forward(const Normed& x, const BranchOutput& output, ForwardContext& ctx) const;

 private:
  void norm_projections(TensorView qkv, ForwardContext& ctx) const;
  void norm_projection(TensorView x, TensorView weight, ForwardContext& ctx) const;

  std::int64_t layer_;
  std::int64_t num_heads_;  // of this rank
  std::int64_t head_dim_;
  TensorView rope_table_;
  float norm_eps_;
  MergedColumnLinear qkv_;
  RowLinear output_;
  bool norms_projections_;
  Tensor q_norm_;  // of a head or, if norms_projections_, of all; empty without norms
  Tensor k_norm_;
};

}  // namespace minisgl::layers
