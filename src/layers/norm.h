#pragma once

#include "core/forward.h"
#include "kernels/norm.h"
#include "layers/weights.h"

namespace minisgl::layers {

/// RMS norm with a learned weight.
class RmsNorm {
 public:
  /// Takes weight [hidden] from `w`.
  RmsNorm(const Weights& w, std::int64_t hidden, double eps)
      : weight_(w.vector("weight", hidden)), eps_(static_cast<float>(eps)) {}

  /// y = norm(x); y may be x.
  void forward(TensorView x, TensorView y, ForwardContext& ctx) const {
    kernels::rms_norm(x, weight_, eps_, y, ctx.stream);
  }
  /// residual += x, then x = norm(residual).
  void add_then_norm(TensorView x, TensorView residual, ForwardContext& ctx) const {
    kernels::fused_add_rms_norm(x, residual, weight_, eps_, ctx.stream);
  }

 private:
  Tensor weight_;
  float eps_;
};

}  // namespace minisgl::layers
