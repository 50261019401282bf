#include "kernels/cpu/per_isa/functions.h"
#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {
namespace {

/// Products and sums are rounded apart, as in x * cos + rotate_half(x) * sin.
void rotate(const float* __restrict x, const float* __restrict cos_sin, float* __restrict y,
            std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float cos = cos_sin[i];
    const float sin = cos_sin[half + i];
    y[i] = x[i] * cos - x[half + i] * sin;
    y[half + i] = x[half + i] * cos + x[i] * sin;
  }
}

}  // namespace

void rope_heads(const RopeHeads& job) {
  float normed[256];
  for (std::int64_t head = 0; head < job.num_heads; ++head) {
    const float* x = job.x + head * job.x_stride;
    if (job.norm != nullptr) {
      norm_rows({.x = x,
                 .weight = job.norm,
                 .y = normed,
                 .num_rows = 1,
                 .hidden = job.head_dim,
                 .eps = job.eps});
      x = normed;
    }
    float* y = job.y + head * job.y_stride;
    rotate(x, job.cos_sin, y, job.rotated_dims / 2);
    for (std::int64_t i = job.rotated_dims; i < job.head_dim; ++i) y[i] = x[i];
  }
}

}  // namespace minisgl::kernels::MINISGL_ISA
