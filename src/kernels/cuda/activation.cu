#include <cuda_runtime.h>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kThreads = 256;

/// A thread makes eight numbers; x of the grid runs along a row.
template <class T, bool kGelu>
__global__ void gated_kernel(const T* gate_up, T* y, std::int64_t gate_up_stride,
                             std::int64_t y_stride, int width) {
  let_next_start();
  await_inputs();
  const int at = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * 8;
  if (at >= width) return;
  const T* row = gate_up + blockIdx.y * gate_up_stride;
  Vec8 gate = Vec8::load(row + at);
  const Vec8 up = Vec8::load(row + width + at);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate.v[i] = activated<kGelu>(gate.v[i]) * up.v[i];
  gate.store(y + blockIdx.y * y_stride + at);
}

template <class T, bool kGelu>
void run(const T* gate_up, T* y, std::int64_t gate_up_stride, std::int64_t y_stride,
         std::int64_t rows, std::int64_t width, cudaStream_t stream) {
  constexpr std::int64_t kMaxRows = 65535;  // of a launch
  for (std::int64_t first = 0; first < rows; first += kMaxRows) {
    const dim3 grid(blocks_for(width, 8 * kThreads),
                    static_cast<unsigned>(std::min(kMaxRows, rows - first)));
    launch("a gated activation", gated_kernel<T, kGelu>, {grid, kThreads}, stream,
           gate_up + first * gate_up_stride, y + first * y_stride, gate_up_stride, y_stride,
           static_cast<int>(width));
  }
}

template <bool kGelu>
void activate_and_mul(TensorView gate_up, TensorView y, Stream& stream) {
  check_float(y, "y");
  check_tensor(y, {-1, -1}, y.dtype, "y");
  check_tensor(gate_up, {y.dim(0), 2 * y.dim(1)}, y.dtype, "gate_up");
  check_vectors(gate_up, "gate_up");
  check_vectors(y, "y");
  if (stream.dry() || y.numel() == 0) return;
  visit_device_float(y.dtype, [&]<class T>() {
    run<T, kGelu>(reinterpret_cast<const T*>(gate_up.data), reinterpret_cast<T*>(y.data),
                  gate_up.stride(0), y.stride(0), y.dim(0), y.dim(1), as_cuda(stream).handle());
  });
}

}  // namespace

void silu_and_mul(TensorView gate_up, TensorView y, Stream& stream) {
  activate_and_mul<false>(gate_up, y, stream);
}

void gelu_tanh_and_mul(TensorView gate_up, TensorView y, Stream& stream) {
  activate_and_mul<true>(gate_up, y, stream);
}

void activate(const Product& p, const void* gate_up, cudaStream_t stream) {
  const auto* from = static_cast<const Bf16*>(gate_up);
  auto* to = static_cast<Bf16*>(p.y);
  if (p.into == Into::kGelu) {
    run<Bf16, true>(from, to, p.rows, p.y_stride, p.tokens, p.rows / 2, stream);
  } else {
    run<Bf16, false>(from, to, p.rows, p.y_stride, p.tokens, p.rows / 2, stream);
  }
}

}  // namespace minisgl::kernels::gpu
