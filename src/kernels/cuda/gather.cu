// Moving rows and single numbers by index; the embedding.

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kThreads = 256;

/// One block a row: rows[i] - first of the table. A row outside of the table becomes zeros.
template <class From, class To>
__global__ void rows_kernel(const From* table, const int* rows, int first, To* y,
                            std::int64_t num_rows, std::int64_t table_stride, std::int64_t y_stride,
                            int width) {
  let_next_start();
  await_inputs();
  const std::int64_t row = rows[blockIdx.x] - first;
  const bool inside = row >= 0 && row < num_rows;
  const From* from = table + (inside ? row : 0) * table_stride;
  To* to = y + blockIdx.x * y_stride;
  for (int at = static_cast<int>(threadIdx.x) * 8; at < width;
       at += static_cast<int>(blockDim.x) * 8) {
    const Vec8 value = inside ? Vec8::load(from + at) : Vec8{};
    value.store(to + at);
  }
}

template <class From, class To>
void launch_rows(TensorView table, TensorView rows, std::int64_t first, TensorView y,
                 Stream& stream) {
  const int threads =
      static_cast<int>(std::min<std::int64_t>(kThreads, round_up<std::int64_t>(y.dim(1) / 8, 32)));
  launch("gather_rows", rows_kernel<From, To>,
         {dim3(static_cast<unsigned>(y.dim(0))), static_cast<unsigned>(threads)},
         as_cuda(stream).handle(), reinterpret_cast<const From*>(table.data),
         rows.as<std::int32_t>(), static_cast<int>(first), reinterpret_cast<To*>(y.data),
         table.dim(0), table.stride(0), y.stride(0), static_cast<int>(y.dim(1)));
}

__global__ void gather_kernel(const int* values, const int* index, int* out, int count) {
  let_next_start();
  await_inputs();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = values[index[i]];
}

__global__ void scatter_kernel(const int* in, const int* index, int* values, int count) {
  let_next_start();
  await_inputs();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[index[i]] = in[i];
}

__global__ void ascending_kernel(int* values, int first, int step, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = first + i * step;
}

void check_ints(const TensorView& tensor, const char* what) {
  check_tensor(tensor, {-1}, DType::kI32, what);
  check(tensor.stride(0) == 1 || tensor.dim(0) <= 1, what, " must be contiguous");
}

}  // namespace

void gather_rows(TensorView x, TensorView rows, TensorView y, Stream& stream) {
  check_float(y, "y");
  check_tensor(rows, {y.dim(0)}, DType::kI32, "rows");
  check_tensor(y, {-1, -1}, y.dtype, "y");
  check_tensor(x, {-1, y.dim(1)}, y.dtype, "x");
  check_vectors(x, "x");
  check_vectors(y, "y");
  if (stream.dry() || y.numel() == 0) return;
  visit_device_float(y.dtype, [&]<class T>() { launch_rows<T, T>(x, rows, 0, y, stream); });
}

void embedding(TensorView ids, const PackedMatrix& table, std::int64_t first_id, TensorView y,
               Stream& stream) {
  check_ints(ids, "ids of embedding");
  check_float(y, "y of embedding");
  check_tensor(y, {ids.dim(0), table.cols()}, y.dtype, "y of embedding");
  check(table.packing() == Packing::kGpuRows, "the table of embedding is not in the GPU's memory");
  check_vectors(y, "y of embedding");
  if (stream.dry() || y.numel() == 0) return;
  const TensorView rows(const_cast<std::byte*>(table.data()), {table.rows(), table.cols()},
                        table.dtype(), stream.device());
  visit_device_float(y.dtype, [&]<class T>() {
    if (table.dtype() == DType::kF16) {
      launch_rows<F16, T>(rows, ids, first_id, y, stream);
    } else {
      launch_rows<Bf16, T>(rows, ids, first_id, y, stream);
    }
  });
}

void gather(TensorView values, TensorView index, TensorView out, Stream& stream) {
  check_ints(values, "values");
  check_ints(out, "out");
  check_tensor(index, {out.dim(0)}, DType::kI32, "index");
  if (stream.dry() || out.dim(0) == 0) return;
  launch("gather", gather_kernel, {dim3(blocks_for(out.dim(0), kThreads)), kThreads},
         as_cuda(stream).handle(), values.as<std::int32_t>(), index.as<std::int32_t>(),
         out.as<std::int32_t>(), static_cast<int>(out.dim(0)));
}

void scatter(TensorView in, TensorView index, TensorView values, Stream& stream) {
  check_ints(values, "values");
  check_ints(in, "in");
  check_tensor(index, {in.dim(0)}, DType::kI32, "index");
  if (stream.dry() || in.dim(0) == 0) return;
  launch("scatter", scatter_kernel, {dim3(blocks_for(in.dim(0), kThreads)), kThreads},
         as_cuda(stream).handle(), in.as<std::int32_t>(), index.as<std::int32_t>(),
         values.as<std::int32_t>(), static_cast<int>(in.dim(0)));
}

void fill_ascending(TensorView view, std::int32_t first, std::int32_t step, Stream& stream) {
  check_ints(view, "view");
  if (stream.dry() || view.dim(0) == 0) return;
  ascending_kernel<<<blocks_for(view.dim(0), kThreads), kThreads, 0, as_cuda(stream).handle()>>>(
      view.as<std::int32_t>(), first, step, static_cast<int>(view.dim(0)));
  check_launch("fill_ascending");
}

}  // namespace minisgl::kernels::gpu
