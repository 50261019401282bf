#include "kernels/elementwise.h"

#include <algorithm>

#include "base/math.h"
#include "kernels/cpu/table.h"

namespace minisgl::kernels {
namespace {

void check_rows(const TensorView& x, const char* what) {
  check_tensor(x, {-1, -1}, DType::kF32, what);
  check(x.stride(1) == 1, what, " must be contiguous in its last dimension");
}

/// job(row, begin, end) on parts of all rows, shared among the threads.
template <class Job>
void for_parts(const TensorView& x, Stream& stream, Job job) {
  check(stream.device().is_cpu(), "this architecture is not supported on a GPU yet");
  const std::int64_t rows = x.dim(0);
  const std::int64_t width = x.dim(1);
  if (x.numel() == 0) return;
  as_cpu(stream).run([=](ThreadPool& pool) {
    constexpr std::int64_t kElementsPerPart = 1 << 14;
    const std::int64_t parts_per_row = ceil_div(width, kElementsPerPart);
    const std::int64_t rows_per_part = std::max<std::int64_t>(1, kElementsPerPart / width);
    const std::int64_t blocks = ceil_div(rows, rows_per_part);
    pool.parallel_for(blocks * parts_per_row, [&](std::int64_t part) {
      const std::int64_t first = part / parts_per_row * rows_per_part;
      const std::int64_t begin = part % parts_per_row * kElementsPerPart;
      const std::int64_t end = std::min(width, begin + kElementsPerPart);
      for (std::int64_t row = first; row < std::min(rows, first + rows_per_part); ++row)
        job(row, begin, end);
    });
  });
}

}  // namespace

void scale(TensorView x, float factor, Stream& stream) {
  check_rows(x, "x");
  for_parts(x, stream, [=](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* values = x.as<float>() + row * x.stride(0);
    for (std::int64_t i = begin; i < end; ++i) values[i] *= factor;
  });
}

void add_and_copy(TensorView x, TensorView residual, float x_scale, Stream& stream) {
  check_rows(residual, "residual");
  check_tensor(x, residual.shape, DType::kF32, "x");
  check_rows(x, "x");
  check(x.data != residual.data || x.data == nullptr, "x and residual must not be the same memory");
  for_parts(x, stream, [=](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* __restrict from = x.as<float>() + row * x.stride(0);
    float* __restrict sum = residual.as<float>() + row * residual.stride(0);
    for (std::int64_t i = begin; i < end; ++i) {
      sum[i] += x_scale * from[i];
      from[i] = sum[i];
    }
  });
}

void softcap(TensorView x, float cap, Stream& stream) {
  check_rows(x, "x");
  check(cap > 0, "a soft cap must be positive, not ", cap);
  for_parts(x, stream, [=](std::int64_t row, std::int64_t begin, std::int64_t end) {
    cpu_kernels().softcap(x.as<float>() + row * x.stride(0) + begin, end - begin, cap);
  });
}

}  // namespace minisgl::kernels
