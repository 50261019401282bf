#include "kernels/activation.h"

#include <algorithm>

#include "base/math.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels {

namespace {

void run(void (*CpuKernels::*kernel)(const GatedRows&), TensorView gate_up, TensorView y,
         Stream& stream) {
  check_tensor(y, {-1, -1}, DType::kF32, "y");
  check_tensor(gate_up, {y.dim(0), 2 * y.dim(1)}, DType::kF32, "gate_up");
  check(gate_up.stride(1) == 1 && y.stride(1) == 1,
        "gate_up and y must be contiguous in their last dimension");
  const GatedRows job{.gate_up = gate_up.as<float>(),
                      .y = y.as<float>(),
                      .gate_up_stride = gate_up.stride(0),
                      .y_stride = y.stride(0),
                      .num_rows = y.dim(0),
                      .width = y.dim(1)};
  if (y.numel() == 0) return;
  as_cpu(stream).run([job, kernel](ThreadPool& pool) {
    constexpr std::int64_t kElementsPerPart = 1 << 13;  // some 3 us
    const CpuKernels& kernels = cpu_kernels();
    const std::int64_t rows = std::max<std::int64_t>(1, kElementsPerPart / job.width);
    pool.parallel_for(ceil_div(job.num_rows, rows), [&](std::int64_t part) {
      GatedRows mine = job;
      const std::int64_t first = part * rows;
      mine.num_rows = std::min(rows, job.num_rows - first);
      mine.gate_up += first * job.gate_up_stride;
      mine.y += first * job.y_stride;
      (kernels.*kernel)(mine);
    });
  });
}

}  // namespace

void silu_and_mul(TensorView gate_up, TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::silu_and_mul(gate_up, y, stream);
  run(&CpuKernels::silu, gate_up, y, stream);
}

void gelu_tanh_and_mul(TensorView gate_up, TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::gelu_tanh_and_mul(gate_up, y, stream);
  run(&CpuKernels::gelu_tanh, gate_up, y, stream);
}

}  // namespace minisgl::kernels
