#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {
namespace {

MINISGL_INLINE Vec silu(Vec z) { return z / (set1(1.0F) + exp(-z)); }

}  // namespace

void silu_rows(const SiluRows& job) {
  for (std::int64_t row = 0; row < job.num_rows; ++row) {
    const float* gate = job.gate_up + row * job.gate_up_stride;
    const float* up = gate + job.width;
    float* y = job.y + row * job.y_stride;
    std::int64_t i = 0;
    for (; i + kW <= job.width; i += kW) store(y + i, silu(load(gate + i)) * load(up + i));
    if (i < job.width) {
      const std::int64_t rest = job.width - i;
      store_part(y + i, silu(load_part(gate + i, rest)) * load_part(up + i, rest), rest);
    }
  }
}

void exp_all(const float* x, std::int64_t n, float* y) {
  std::int64_t i = 0;
  for (; i + kW <= n; i += kW) store(y + i, exp(load(x + i)));
  if (i < n) store_part(y + i, exp(load_part(x + i, n - i)), n - i);
}

}  // namespace minisgl::kernels::MINISGL_ISA
