#include <cmath>
#include <numbers>

#include "kernels/ref/reference.h"

namespace minisgl::kernels::ref {

namespace {

template <class Activation>
void gated(TensorView gate_up, TensorView y, Activation activation) {
  for (std::int64_t row = 0; row < y.dim(0); ++row) {
    const float* gate = gate_up.as<float>() + row * gate_up.stride(0);
    const float* up = gate + y.dim(1);
    float* to = y.as<float>() + row * y.stride(0);
    for (std::int64_t i = 0; i < y.dim(1); ++i)
      to[i] = static_cast<float>(activation(double{gate[i]}) * up[i]);
  }
}

}  // namespace

void silu_and_mul(TensorView gate_up, TensorView y) {
  gated(gate_up, y, [](double z) { return z / (1.0 + std::exp(-z)); });
}

void gelu_tanh_and_mul(TensorView gate_up, TensorView y) {
  gated(gate_up, y, [](double z) {
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z);
    return 0.5 * z * (1.0 + std::tanh(inner));
  });
}

}  // namespace minisgl::kernels::ref
