// Routing of tokens to experts. Three kernels: a warp chooses for a token; a block for each expert
// collects the expert's tokens; a block adds up a token's answers.

#include <cuda_runtime.h>

#include <climits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kRouteThreads = 128;
constexpr int kOrderThreads = 512;
constexpr int kCombineThreads = 256;
constexpr unsigned kAll = 0xFFFFFFFFU;

/// A lane has the logits of the experts lane, lane + 32, ...
template <int kPerLane>
__global__ void __launch_bounds__(kRouteThreads)
    route_kernel(const float* logits, std::int64_t tokens, int num_experts, int chosen,
                 bool normalize, int* experts, float* weights) {
  let_next_start();
  await_inputs();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t t =
      std::int64_t{blockIdx.x} * (kRouteThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (t >= tokens) return;
  float x[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * 32 + lane;
    x[i] = e < num_experts ? logits[t * num_experts + e] : -INFINITY;
  }
  std::uint32_t taken = 0;  // bit i: of x[i]
  float top = 0;
  float sum = 0;  // of the chosen, in descending order
  for (int j = 0; j < chosen; ++j) {
    float best = -INFINITY;
    int id = INT_MAX;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float value = isnan(x[i]) ? -INFINITY : x[i];
      // The first of equals: ids ascend with i.
      if ((taken >> i & 1U) == 0 && (id == INT_MAX || value > best)) {
        best = value;
        id = i * 32 + lane;
      }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      const float value = __shfl_xor_sync(kAll, best, d);
      const int other = __shfl_xor_sync(kAll, id, d);
      if (value > best || (value == best && other < id)) {
        best = value;
        id = other;
      }
    }
    if (id % 32 == lane) taken |= 1U << (id / 32);
    if (j == 0) top = best;
    sum += expf(best - top);
  }
  if (!normalize) {
    sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += expf(x[i] - top);
    sum = warp_sum(sum);
  }
  int position = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool mine = (taken >> i & 1U) != 0;
    const unsigned all = __ballot_sync(kAll, mine);
    if (mine) {
      const std::int64_t at = t * chosen + position + __popc(all & ((1U << lane) - 1));
      experts[at] = i * 32 + lane;
      weights[at] = expf(x[i] - top) / sum;
    }
    position += __popc(all);
  }
}

/// Block e: where the pairs of expert e go. It looks at all pairs twice, in the L2 cache; in
/// exchange no block waits for another.
__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(const int* experts, int pairs, int chosen, int* rows, int* tokens, int* offsets) {
  constexpr int kWarps = kOrderThreads / 32;
  __shared__ int counts[2][kWarps];
  __shared__ int before;
  let_next_start();
  await_inputs();
  const int e = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  int lower = 0;
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kOrderThreads)
    lower += static_cast<int>(experts[i] < e);
  lower = __reduce_add_sync(kAll, lower);
  if (lane == 0 && lower > 0) atomicAdd(&before, lower);
  __syncthreads();
  int next = before;
  if (threadIdx.x == 0) {
    offsets[e] = next;
    if (e + 1 == static_cast<int>(gridDim.x)) offsets[e + 1] = pairs;
  }
  for (int begin = 0, turn = 0; begin < pairs; begin += kOrderThreads, turn ^= 1) {
    const int i = begin + static_cast<int>(threadIdx.x);
    const bool mine = i < pairs && experts[i] == e;
    const unsigned all = __ballot_sync(kAll, mine);
    if (lane == 0) counts[turn][warp] = __popc(all);
    __syncthreads();  // the other turn's counts are read by then
    const int count = lane < kWarps ? counts[turn][lane] : 0;
    const int of_warps_before = __reduce_add_sync(kAll, lane < warp ? count : 0);
    if (mine) {
      const int row = next + of_warps_before + __popc(all & ((1U << lane) - 1));
      rows[i] = row;
      tokens[row] = i / chosen;
    }
    next += __reduce_add_sync(kAll, count);
  }
}

template <class X, class Y>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const X* x, const float* weights, const int* rows, Y* y, std::int64_t x_stride,
                   std::int64_t y_stride, int chosen, int width) {
  let_next_start();
  await_inputs();
  const std::int64_t first = std::int64_t{blockIdx.x} * chosen;
  for (int at = static_cast<int>(threadIdx.x) * 8; at < width; at += kCombineThreads * 8) {
    Vec8 sum{};
    for (int j = 0; j < chosen; ++j) {
      const float weight = weights[first + j];
      const Vec8 answer = Vec8::load(x + rows[first + j] * x_stride + at);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.v[i] += weight * answer.v[i];
    }
    sum.store(y + blockIdx.x * y_stride + at);
  }
}

void launch_route(TensorView logits, bool normalize, const Routing& routing, cudaStream_t stream) {
  const std::int64_t tokens = logits.dim(0);
  const auto num_experts = static_cast<int>(logits.dim(1));
  const auto kernel = num_experts <= 32    ? route_kernel<1>
                      : num_experts <= 128 ? route_kernel<4>
                      : num_experts <= 256 ? route_kernel<8>
                                           : route_kernel<32>;
  launch("route_tokens", kernel, {dim3(blocks_for(tokens, kRouteThreads / 32)), kRouteThreads},
         stream, logits.as<float>(), tokens, num_experts, static_cast<int>(routing.experts.dim(1)),
         normalize, routing.experts.as<std::int32_t>(), routing.weights.as<float>());
}

}  // namespace

void route_tokens(TensorView logits, bool normalize, const Routing& routing, Stream& stream) {
  const std::int64_t pairs = routing.experts.numel();
  check(pairs <= INT_MAX, "a step of ", pairs, " choices of experts is too large");
  if (stream.dry() || pairs == 0) return;
  const cudaStream_t on = as_cuda(stream).handle();
  launch_route(logits, normalize, routing, on);
  launch("ordering tokens by expert", order_kernel,
         {dim3(static_cast<unsigned>(logits.dim(1))), kOrderThreads}, on,
         routing.experts.as<std::int32_t>(), static_cast<int>(pairs),
         static_cast<int>(routing.experts.dim(1)), routing.rows.as<std::int32_t>(),
         routing.tokens.as<std::int32_t>(), routing.offsets.as<std::int32_t>());
}

void combine_experts(TensorView x, const Routing& routing, TensorView y, Stream& stream) {
  check_float(x, "x");
  check_float(y, "y");
  check_tensor(y, {routing.rows.dim(0), -1}, y.dtype, "y");
  check_tensor(x, {routing.rows.numel(), y.dim(1)}, x.dtype, "x");
  check_vectors(x, "x");
  check_vectors(y, "y");
  if (stream.dry() || y.numel() == 0) return;
  visit_device_float(x.dtype, [&]<class X>() {
    visit_device_float(y.dtype, [&]<class Y>() {
      launch("combine_experts", combine_kernel<X, Y>,
             {dim3(static_cast<unsigned>(y.dim(0))), kCombineThreads}, as_cuda(stream).handle(),
             reinterpret_cast<const X*>(x.data), routing.weights.as<float>(),
             routing.rows.as<std::int32_t>(), reinterpret_cast<Y*>(y.data), x.stride(0),
             y.stride(0), static_cast<int>(routing.rows.dim(1)), static_cast<int>(y.dim(1)));
    });
  });
}

}  // namespace minisgl::kernels::gpu
