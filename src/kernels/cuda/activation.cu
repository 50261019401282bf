#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kThreads = 256;

/// A thread makes eight numbers; x of the grid runs along a row.
template <class T>
__global__ void silu_kernel(const T* gate_up, T* y, std::int64_t gate_up_stride,
                            std::int64_t y_stride, int width) {
  let_next_start();
  await_inputs();
  const int at = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * 8;
  if (at >= width) return;
  const T* row = gate_up + blockIdx.y * gate_up_stride;
  Vec8 gate = Vec8::load(row + at);
  const Vec8 up = Vec8::load(row + width + at);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate.v[i] = gate.v[i] / (1.0F + __expf(-gate.v[i])) * up.v[i];
  gate.store(y + blockIdx.y * y_stride + at);
}

}  // namespace

void silu_and_mul(TensorView gate_up, TensorView y, Stream& stream) {
  check_float(y, "y");
  check_tensor(y, {-1, -1}, y.dtype, "y");
  check_tensor(gate_up, {y.dim(0), 2 * y.dim(1)}, y.dtype, "gate_up");
  check_vectors(gate_up, "gate_up");
  check_vectors(y, "y");
  if (stream.dry() || y.numel() == 0) return;
  constexpr std::int64_t kMaxRows = 65535;  // of a launch
  for (std::int64_t first = 0; first < y.dim(0); first += kMaxRows) {
    const std::int64_t rows = std::min(kMaxRows, y.dim(0) - first);
    const dim3 grid(blocks_for(y.dim(1), 8 * kThreads), static_cast<unsigned>(rows));
    visit_device_float(y.dtype, [&]<class T>() {
      launch("silu_and_mul", silu_kernel<T>, {grid, kThreads}, as_cuda(stream).handle(),
             reinterpret_cast<const T*>(gate_up.data) + first * gate_up.stride(0),
             reinterpret_cast<T*>(y.data) + first * y.stride(0), gate_up.stride(0), y.stride(0),
             static_cast<int>(y.dim(1)));
    });
  }
}

}  // namespace minisgl::kernels::gpu
