#include <cmath>

#include "kernels/ref/reference.h"

namespace minisgl::kernels::ref {

void silu_and_mul(TensorView gate_up, TensorView y) {
  for (std::int64_t row = 0; row < y.dim(0); ++row) {
    const float* gate = gate_up.as<float>() + row * gate_up.stride(0);
    const float* up = gate + y.dim(1);
    float* to = y.as<float>() + row * y.stride(0);
    for (std::int64_t i = 0; i < y.dim(1); ++i)
      to[i] = static_cast<float>(gate[i] / (1.0 + std::exp(-double{gate[i]})) * up[i]);
  }
}

}  // namespace minisgl::kernels::ref
