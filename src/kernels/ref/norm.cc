#include <cmath>

#include "kernels/ref/reference.h"

namespace minisgl::kernels::ref {

void rms_norm(TensorView x, TensorView weight, float eps, TensorView y) {
  const std::int64_t hidden = weight.dim(0);
  const float* w = weight.as<float>();
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    const float* from = x.as<float>() + row * x.stride(0);
    float* to = y.as<float>() + row * y.stride(0);
    double squares = 0;
    for (std::int64_t i = 0; i < hidden; ++i) squares += double{from[i]} * from[i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + eps);
    for (std::int64_t i = 0; i < hidden; ++i) to[i] = static_cast<float>(from[i] * scale * w[i]);
  }
}

void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, float eps,
                        float x_scale) {
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    const float* from = x.as<float>() + row * x.stride(0);
    float* to = residual.as<float>() + row * residual.stride(0);
    for (std::int64_t i = 0; i < weight.dim(0); ++i) to[i] += x_scale * from[i];
  }
  rms_norm(residual, weight, eps, x);
}

}  // namespace minisgl::kernels::ref
