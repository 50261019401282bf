#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {
namespace {

struct Silu {
  MINISGL_INLINE Vec of(Vec z) { return z / (set1(1.0F) + exp(-z)); }
};

struct GeluTanh {
  MINISGL_INLINE Vec of(Vec z) {
    constexpr float kSqrt2OverPi = 0.797884560802865356F;
    const Vec inner = set1(kSqrt2OverPi) * (z + set1(0.044715F) * (z * z * z));
    return set1(0.5F) * z * (set1(1.0F) + tanh(inner));
  }
};

template <class Activation>
MINISGL_INLINE void gated_rows(const GatedRows& job) {
  for (std::int64_t row = 0; row < job.num_rows; ++row) {
    const float* gate = job.gate_up + row * job.gate_up_stride;
    const float* up = gate + job.width;
    float* y = job.y + row * job.y_stride;
    std::int64_t i = 0;
    for (; i + kW <= job.width; i += kW)
      store(y + i, Activation::of(load(gate + i)) * load(up + i));
    if (i < job.width) {
      const std::int64_t rest = job.width - i;
      store_part(y + i, Activation::of(load_part(gate + i, rest)) * load_part(up + i, rest), rest);
    }
  }
}

}  // namespace

void silu_rows(const GatedRows& job) { gated_rows<Silu>(job); }

void gelu_tanh_rows(const GatedRows& job) { gated_rows<GeluTanh>(job); }

void exp_all(const float* x, std::int64_t n, float* y) {
  std::int64_t i = 0;
  for (; i + kW <= n; i += kW) store(y + i, exp(load(x + i)));
  if (i < n) store_part(y + i, exp(load_part(x + i, n - i)), n - i);
}

}  // namespace minisgl::kernels::MINISGL_ISA
