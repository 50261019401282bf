#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxVecs = 4;  // of eight numbers, in the registers of a thread

struct NormArgs {
  const void* x;
  float* residual;  // null: none
  const float* weight;
  void* y;
  std::int64_t x_stride, residual_stride, y_stride;
  int hidden;
  float eps;
  const int* x_rows = nullptr;  // which row of x each row of y is of; null: the same
};

/// One block a row; a row is read once and stays in registers between its two uses, kVecs times
/// eight numbers in a thread.
template <class X, class Y, bool kAdd, int kVecs>
__global__ void norm_kernel(NormArgs args) {
  __shared__ float shared[32];
  let_next_start();
  const int step = static_cast<int>(blockDim.x) * 8;
  const auto place = [&](int i) { return static_cast<int>(threadIdx.x) * 8 + i * step; };
  Vec8 weights[kVecs];  // on their way while the kernel before ends
#pragma unroll
  for (int i = 0; i < kVecs; ++i)
    if (place(i) < args.hidden) weights[i] = Vec8::load(args.weight + place(i));
  await_inputs();
  const std::int64_t row = blockIdx.x;
  const std::int64_t from = args.x_rows == nullptr ? row : args.x_rows[row];
  const X* x = static_cast<const X*>(args.x) + from * args.x_stride;
  float* residual = kAdd ? args.residual + row * args.residual_stride : nullptr;
  Y* y = static_cast<Y*>(args.y) + row * args.y_stride;
  Vec8 values[kVecs];
#pragma unroll
  for (int i = 0; i < kVecs; ++i)
    if (place(i) < args.hidden) values[i] = Vec8::load(x + place(i));
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int at = place(i);
    if (at >= args.hidden) break;
    if constexpr (kAdd) {
      const Vec8 old = Vec8::load(residual + at);
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i].v[j] += old.v[j];
      values[i].store(residual + at);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += values[i].v[j] * values[i].v[j];
  }
  const float mean = block_sum(squares, shared) / static_cast<float>(args.hidden);
  const float scale = rsqrtf(mean + args.eps);
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int at = place(i);
    if (at >= args.hidden) break;
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i].v[j] *= scale * weights[i].v[j];
    values[i].store(y + at);
  }
}

void check_rows(const TensorView& tensor, const TensorView& weight, const char* what) {
  check_float(tensor, what);
  check_tensor(tensor, {-1, weight.dim(0)}, tensor.dtype, what);
  check_vectors(tensor, what);
}

void check_weight(const TensorView& weight) {
  check_tensor(weight, {-1}, DType::kF32, "weight");
  check_vectors(weight, "weight");
  check(weight.dim(0) > 0 && weight.dim(0) <= 8 * kMaxVecs * kMaxThreads,
        "a norm on a GPU takes rows of 8 to ", 8 * kMaxVecs * kMaxThreads, " numbers, not ",
        weight.dim(0));
}

template <class X, class Y, bool kAdd>
void run(const char* name, const NormArgs& args, std::int64_t rows, cudaStream_t stream) {
  // By the width alone: the order of the sums must not depend on how many rows there are. Wide rows
  // in fewer threads: more rows fit a multiprocessor, and their barriers are shorter.
  const auto with = [&]<int kVecs>(std::integral_constant<int, kVecs> /*vecs*/) {
    const int threads = round_up(ceil_div(args.hidden, 8 * kVecs), 32);
    launch(name, norm_kernel<X, Y, kAdd, kVecs>,
           {.grid = dim3(static_cast<unsigned>(rows)), .threads = static_cast<unsigned>(threads)},
           stream, args);
  };
  if (args.hidden <= 1024) {
    with(std::integral_constant<int, 1>{});
  } else if (args.hidden <= 8 * 2 * kMaxThreads) {
    with(std::integral_constant<int, 2>{});
  } else {
    with(std::integral_constant<int, kMaxVecs>{});
  }
}

}  // namespace

void rms_norm(TensorView x, TensorView weight, float eps, TensorView y, Stream& stream) {
  check_weight(weight);
  check_rows(x, weight, "x");
  check_rows(y, weight, "y");
  check(x.dim(0) == y.dim(0), "x has ", x.dim(0), " tokens but y has ", y.dim(0));
  if (stream.dry() || x.dim(0) == 0) return;
  const NormArgs args{.x = x.data,
                      .residual = nullptr,
                      .weight = weight.as<float>(),
                      .y = y.data,
                      .x_stride = x.stride(0),
                      .residual_stride = 0,
                      .y_stride = y.stride(0),
                      .hidden = static_cast<int>(weight.dim(0)),
                      .eps = eps};
  visit_device_float(x.dtype, [&]<class X>() {
    visit_device_float(y.dtype, [&]<class Y>() {
      run<X, Y, false>("rms_norm", args, x.dim(0), as_cuda(stream).handle());
    });
  });
}

void fused_add_rms_norm(TensorView x, TensorView residual, TensorView weight, float eps,
                        Stream& stream) {
  check_weight(weight);
  check_rows(x, weight, "x");
  check_rows(residual, weight, "residual");
  check(residual.dtype == DType::kF32, "residual is ", name(residual.dtype), ", expected f32");
  check(x.dim(0) == residual.dim(0), "x has ", x.dim(0), " tokens but residual has ",
        residual.dim(0));
  if (stream.dry() || x.dim(0) == 0) return;
  check(x.data != residual.data, "x and residual must not be the same memory");
  const NormArgs args{.x = x.data,
                      .residual = residual.as<float>(),
                      .weight = weight.as<float>(),
                      .y = x.data,
                      .x_stride = x.stride(0),
                      .residual_stride = residual.stride(0),
                      .y_stride = x.stride(0),
                      .hidden = static_cast<int>(weight.dim(0)),
                      .eps = eps};
  visit_device_float(x.dtype, [&]<class X>() {
    run<X, X, true>("fused_add_rms_norm", args, x.dim(0), as_cuda(stream).handle());
  });
}

void norm_rows(const Product& p, void* y, cudaStream_t stream) {
  const NormArgs args{.x = p.x,
                      .residual = nullptr,
                      .weight = p.norm,
                      .y = y,
                      .x_stride = p.x_stride,
                      .residual_stride = 0,
                      .y_stride = p.cols,
                      .hidden = static_cast<int>(p.cols),
                      .eps = p.eps,
                      .x_rows = p.x_rows};
  run<float, Bf16, false>("rms_norm", args, p.tokens, stream);
}

}  // namespace minisgl::kernels::gpu
