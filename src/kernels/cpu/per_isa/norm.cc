#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {
namespace {

/// sum x^2 in four vectors of lanes, whatever hides behind the end counting as zero.
float sum_of_squares(const float* x, std::int64_t n) {
  Vec acc[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * kW <= n; i += 4 * kW) {
    for (int j = 0; j < 4; ++j) {
      const Vec v = load(x + i + j * kW);
      acc[j] = fma(v, v, acc[j]);
    }
  }
  for (int j = 0; i < n; ++j, i += kW) {
    const Vec v = n - i >= kW ? load(x + i) : load_part(x + i, n - i);
    acc[j] = fma(v, v, acc[j]);
  }
  return sum((acc[0] + acc[2]) + (acc[1] + acc[3]));
}

/// Products are rounded apart from sums, so a scale of 1 changes nothing.
void add(float* sum, const float* x, float scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += scale * x[i];
}

}  // namespace

void norm_rows(const NormRows& job) {
  const std::int64_t n = job.hidden;
  for (std::int64_t row = 0; row < job.num_rows; ++row) {
    const float* x = job.x + row * job.x_stride;
    float* y = job.y + row * job.y_stride;
    const float* from = x;
    if (job.residual != nullptr) {
      float* residual = job.residual + row * job.residual_stride;
      add(residual, x, job.x_scale, n);
      from = residual;
    }
    const float mean = sum_of_squares(from, n) / static_cast<float>(n);
    const float scale = 1.0F / __builtin_sqrtf(mean + job.eps);
    for (std::int64_t i = 0; i < n; ++i) y[i] = from[i] * scale * job.weight[i];
  }
}

}  // namespace minisgl::kernels::MINISGL_ISA
