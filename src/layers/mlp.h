#pragma once

#include "core/forward.h"
#include "core/model_config.h"
#include "layers/linear.h"

namespace minisgl::layers {

/// down(activation(gate(x)) * up(x)), tensor-parallel over the intermediate dimension.
///
/// Weights  gate_proj, up_proj [intermediate, hidden] (a product), down_proj [hidden, intermediate]
/// Source   mini-sglang models/utils.py GatedMLP.
class GatedMlp {
 public:
  /// Takes its weights from `w`; throws Error naming the tensor that is missing or misshapen.
  GatedMlp(const Weights& w, std::int64_t hidden, std::int64_t intermediate,
           Activation activation = Activation::kSilu);

  /// x [num_tokens, hidden] -> output [num_tokens, hidden], whose memory may be x's.
  void forward(const Normed& x, const BranchOutput& output, ForwardContext& ctx) const;

 private:
  MergedColumnLinear gate_up_;
  RowLinear down_;
  Activation activation_;
};

}  // namespace minisgl::layers
