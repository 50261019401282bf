// Weights on their way to a GPU.

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cuda/ops.h"
#include "kernels/ref/dequantize.h"
#include "tensor/cuda/device.h"
#include "tensor/half.h"

namespace minisgl::kernels::gpu {

PackedMatrix pack_matrix(TensorView weight, std::span<const std::int32_t> row_order,
                         ThreadPool& pool, Device device, DType dtype, std::string_view what) {
  check(dtype == DType::kBF16 || dtype == DType::kF16, "weights on a GPU are bf16 or f16, not ",
        name(dtype));
  check(weight.rank() == 2 && weight.stride(1) == 1,
        "a weight must be a matrix of contiguous rows");
  const std::int64_t rows =
      row_order.empty() ? weight.dim(0) : static_cast<std::int64_t>(row_order.size());
  const std::int64_t cols = weight.dim(1);
  check(cols % 8 == 0, "a weight is [", rows, ", ", cols, "]; a GPU needs a multiple of 8 columns");
  Buffer data(static_cast<std::size_t>(rows * cols) * sizeof(BFloat16), {.device = device});
  if (!weight.device.is_cpu()) {
    check(weight.device == device && weight.dtype == dtype && row_order.empty(),
          "a weight in a GPU's memory stays as it is");
    cuda::copy_rows_now(data.data(), cols * 2, weight.data, weight.stride(0) * 2, cols * 2, rows);
    return {rows, cols, dtype, Packing::kGpuRows, std::move(data)};
  }
  // In parts that bound the memory of the host.
  const std::int64_t part_rows = std::max<std::int64_t>(1, (std::int64_t{64} << 20) / (cols * 2));
  Buffer staging(static_cast<std::size_t>(std::min(part_rows, rows) * cols) * sizeof(BFloat16),
                 {.pinned_for = device});
  std::atomic<bool> beyond = false;
  for (std::int64_t first = 0; first < rows; first += part_rows) {
    const std::int64_t count = std::min(part_rows, rows - first);
    pool.parallel_for(count, [&](std::int64_t i) {
      const std::int64_t row = row_order.empty() ? first + i : row_order[first + i];
      const std::byte* from = weight.data + bytes_of(weight.dtype, row * weight.stride(0));
      std::byte* to = staging.data() + i * cols * 2;
      if (weight.dtype == dtype) {
        std::memcpy(to, from, static_cast<std::size_t>(cols) * 2);
        return;
      }
      thread_local std::vector<float> values;
      values.resize(static_cast<std::size_t>(cols));
      dequantize_row(weight.dtype, from, cols, values.data());
      if (dtype == DType::kBF16) {
        auto* numbers = reinterpret_cast<BFloat16*>(to);
        for (std::int64_t k = 0; k < cols; ++k)
          numbers[k] = to_bf16(values[static_cast<std::size_t>(k)]);
      } else {
        auto* numbers = reinterpret_cast<Half*>(to);
        for (std::int64_t k = 0; k < cols; ++k) {
          const float value = values[static_cast<std::size_t>(k)];
          numbers[k] = to_f16(value);
          if (std::isfinite(value) && std::isinf(to_f32(numbers[k])))
            beyond.store(true, std::memory_order_relaxed);
        }
      }
    });
    if (beyond)
      throw Error(std::string(what) +
                  " has values beyond the range of f16; choose another --dtype");
    cuda::copy_now(data.data() + first * cols * 2, staging.data(),
                   static_cast<std::size_t>(count * cols * 2));
  }
  return {rows, cols, dtype, Packing::kGpuRows, std::move(data)};
}

PackedMatrix concatenate_rows(std::span<const PackedMatrix> parts) {
  check(!parts.empty(), "no matrices to concatenate");
  std::int64_t rows = 0;
  for (const PackedMatrix& part : parts) {
    check(part.packing() == Packing::kGpuRows && part.cols() == parts[0].cols() &&
              part.dtype() == parts[0].dtype(),
          "only matrices of equal width and type in a GPU's memory can be concatenated");
    rows += part.rows();
  }
  Buffer data(static_cast<std::size_t>(rows * parts[0].cols()) * sizeof(BFloat16),
              {.device = parts[0].device()});
  std::byte* to = data.data();
  for (const PackedMatrix& part : parts) {
    cuda::copy_now(to, part.data(), part.bytes());
    to += part.bytes();
  }
  return {rows, parts[0].cols(), parts[0].dtype(), Packing::kGpuRows, std::move(data)};
}

}  // namespace minisgl::kernels::gpu
