#pragma once

#include <array>

#include "core/forward.h"
#include "core/model_config.h"
#include "kernels/grouped_linear.h"
#include "layers/weights.h"

namespace minisgl::layers {

/// A mixture of experts in place of an MLP: a router chooses some gated MLPs for each token, and
/// their answers are added up with its weights. Experts are tensor-parallel over their intermediate
/// dimension, as GatedMlp is.
///
/// Only the weights of chosen experts are read. A token's result does not depend on the other
/// tokens: see kernels::grouped_linear() and combine_experts().
///
/// Weights  gate [num_experts, hidden] (the router); for every expert N experts.N.gate_proj,
///          experts.N.up_proj [intermediate, hidden], experts.N.down_proj [hidden, intermediate]
/// Source   transformers modeling_qwen3_moe.py Qwen3MoeSparseMoeBlock; mini-sglang layers/moe.py.
class MoeMlp {
 public:
  /// Takes its weights from `w`; throws Error naming the tensor that is missing or misshapen.
  MoeMlp(const Weights& w, std::int64_t hidden, const MoeConfig& config);
  MoeMlp(const MoeMlp&) = delete;
  MoeMlp& operator=(const MoeMlp&) = delete;

  /// x [num_tokens, hidden] -> y [num_tokens, hidden]; y may be x.
  void forward(TensorView x, TensorView y, ForwardContext& ctx) const;

 private:
  MoeConfig config_;
  kernels::PackedMatrix router_;
  kernels::PackedExperts gate_;
  kernels::PackedExperts up_;
  kernels::PackedExperts down_;
};

}  // namespace minisgl::layers
