#include "kernels/gather.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels {

void gather_rows(TensorView x, TensorView rows, TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::gather_rows(x, rows, y, stream);
  check_tensor(rows, {y.dim(0)}, DType::kI32, "rows");
  check_tensor(x, {-1, y.dim(1)}, DType::kF32, "x");
  check_tensor(y, {-1, -1}, DType::kF32, "y");
  as_cpu(stream).run([=](ThreadPool& pool) {
    constexpr std::int64_t kElementsPerPart = 1 << 14;
    const std::int32_t* index = rows.as<std::int32_t>();
    const auto bytes = static_cast<std::size_t>(y.dim(1)) * sizeof(float);
    const std::int64_t per_part = std::max<std::int64_t>(1, kElementsPerPart / y.dim(1));
    pool.parallel_for(ceil_div(y.dim(0), per_part), [&](std::int64_t part) {
      const std::int64_t end = std::min(y.dim(0), (part + 1) * per_part);
      for (std::int64_t i = part * per_part; i < end; ++i)
        std::memcpy(y.as<float>() + i * y.stride(0), x.as<float>() + index[i] * x.stride(0), bytes);
    });
  });
}

void gather(TensorView values, TensorView index, TensorView out, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::gather(values, index, out, stream);
  check_tensor(index, {out.dim(0)}, DType::kI32, "index");
  check_tensor(values, {-1}, DType::kI32, "values");
  check_tensor(out, {-1}, DType::kI32, "out");
  as_cpu(stream).run([=](ThreadPool&) {
    for (std::int64_t i = 0; i < out.dim(0); ++i)
      out.as<std::int32_t>()[i] = values.as<std::int32_t>()[index.as<std::int32_t>()[i]];
  });
}

void scatter(TensorView in, TensorView index, TensorView values, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::scatter(in, index, values, stream);
  check_tensor(index, {in.dim(0)}, DType::kI32, "index");
  check_tensor(values, {-1}, DType::kI32, "values");
  check_tensor(in, {-1}, DType::kI32, "in");
  as_cpu(stream).run([=](ThreadPool&) {
    for (std::int64_t i = 0; i < in.dim(0); ++i)
      values.as<std::int32_t>()[index.as<std::int32_t>()[i]] = in.as<std::int32_t>()[i];
  });
}

}  // namespace minisgl::kernels
