#pragma once

#include "core/forward.h"
#include "kernels/norm.h"
#include "layers/weights.h"

namespace minisgl::layers {

/// What becomes of a norm's stored weight: (weight + offset) * scale.
struct NormWeight {
  double offset = 0;
  double scale = 1;
};

/// Takes weight [size] of a norm from `w`.
inline Tensor norm_weight(const Weights& w, std::int64_t size, NormWeight change = {}) {
  Tensor weight = w.vector("weight", size);
  float* values = weight.view().as<float>();
  for (std::int64_t i = 0; i < size; ++i)
    values[i] = (values[i] + static_cast<float>(change.offset)) * static_cast<float>(change.scale);
  return w.to_device(std::move(weight));
}

/// RMS norm with a learned weight.
class RmsNorm {
 public:
  /// Takes weight [hidden] from `w`.
  RmsNorm(const Weights& w, std::int64_t hidden, double eps, NormWeight change = {})
      : weight_(norm_weight(w, hidden, change)), eps_(static_cast<float>(eps)) {}

  /// y = norm(x); y may be x.
  void forward(TensorView x, TensorView y, ForwardContext& ctx) const {
    kernels::rms_norm(x, weight_, eps_, y, ctx.stream);
  }
  TensorView weight() const { return weight_; }
  float eps() const { return eps_; }

  /// residual += x_scale * x, then x = norm(residual).
  void add_then_norm(TensorView x, TensorView residual, ForwardContext& ctx,
                     double x_scale = 1) const {
    kernels::fused_add_rms_norm(x, residual, weight_, eps_, ctx.stream,
                                static_cast<float>(x_scale));
  }

 private:
  Tensor weight_;
  float eps_;
};

}  // namespace minisgl::layers
