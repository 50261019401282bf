#include "kernels/norm.h"

#include <algorithm>

#include "base/math.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kElementsPerPart = 1 << 14;

void check_rows(const TensorView& tensor, const TensorView& weight, const char* what) {
  const std::int64_t hidden = weight.dim(0);
  check(tensor.rank() == 2 && tensor.dtype == DType::kF32, what,
        " must be [num_tokens, hidden] f32, not ", to_string(tensor.shape), " ",
        name(tensor.dtype));
  check(tensor.dim(1) == hidden, what, " has hidden=", tensor.dim(1), " but weight has ", hidden);
  check(tensor.stride(1) == 1, what, " must be contiguous in its last dimension");
}

void check_weight(const TensorView& weight) {
  check_tensor(weight, {-1}, DType::kF32, "weight");
  check(weight.dim(0) > 0 && weight.stride(0) == 1, "weight must be contiguous and not empty");
}

/// Shares the rows among the threads. Pointers of `job` are to row 0.
void run(const NormRows& job, Stream& stream) {
  if (job.num_rows == 0) return;
  as_cpu(stream).run([job](ThreadPool& pool) {
    const CpuKernels& kernels = cpu_kernels();
    const std::int64_t rows = std::max<std::int64_t>(1, kElementsPerPart / job.hidden);
    pool.parallel_for(ceil_div(job.num_rows, rows), [&](std::int64_t part) {
      NormRows mine = job;
      const std::int64_t first = part * rows;
      mine.num_rows = std::min(rows, job.num_rows - first);
      mine.x += first * job.x_stride;
      mine.y += first * job.y_stride;
      if (mine.residual != nullptr) mine.residual += first * job.residual_stride;
      kernels.norm(mine);
    });
  });
}

}  // namespace

void rms_norm(TensorView x, TensorView weight, float eps, TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::rms_norm(x, weight, eps, y, stream);
  check_weight(weight);
  check_rows(x, weight, "x");
  check_rows(y, weight, "y");
  check(x.dim(0) == y.dim(0), "x has ", x.dim(0), " tokens but y has ", y.dim(0));
  run({.x = x.as<float>(),
       .weight = weight.as<float>(),
       .y = y.as<float>(),
       .x_stride = x.stride(0),
       .y_stride = y.stride(0),
       .num_rows = x.dim(0),
       .hidden = weight.dim(0),
       .eps = eps},
      stream);
}

void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, float eps,
                        Stream& stream, float x_scale) {
  check(x_scale == 1 || stream.device().is_cpu(),
        "scaled residuals are not supported on a GPU yet");
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::fused_add_rms_norm(x, residual, weight, eps, stream);
  check_weight(weight);
  check_rows(x, weight, "x");
  check_rows(residual, weight, "residual");
  check(x.dim(0) == residual.dim(0), "x has ", x.dim(0), " tokens but residual has ",
        residual.dim(0));
  check(x.data != residual.data || x.data == nullptr, "x and residual must not be the same memory");
  run({.x = x.as<float>(),
       .residual = residual.as<float>(),
       .weight = weight.as<float>(),
       .y = x.as<float>(),
       .x_stride = x.stride(0),
       .residual_stride = residual.stride(0),
       .y_stride = x.stride(0),
       .num_rows = x.dim(0),
       .hidden = weight.dim(0),
       .eps = eps,
       .x_scale = x_scale},
      stream);
}

}  // namespace minisgl::kernels
