// The plain kernel: what the fast ones are compared with.

#include <cuda_runtime.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxEach = 8;  // numbers of a head in a lane: head_dim 256

/// A block for each query head of each token. Its warps take every fourth key; a lane holds the
/// numbers lane, lane + 32, ... of a head.
template <class Q, class KV>
__global__ void __launch_bounds__(32 * kWarps) plain_kernel(AttentionArgs args) {
  __shared__ float maxima[kWarps], sums[kWarps], values[kWarps][32 * kMaxEach];
  const int token = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int seq = 0;  // the last whose first token is not after this one
  for (int step = 1 << 20; step > 0; step /= 2)
    if (seq + step < args.num_seqs && args.cu_seqlens_q[seq + step] <= token) seq += step;
  const int end = args.cache_seqlens[seq] - (args.cu_seqlens_q[seq + 1] - token) + 1;
  const int begin = args.window == 0 ? 0 : max(0, end - args.window);
  const int kv_head = head / args.group;
  const int dim = args.head_dim;
  const Q* q = static_cast<const Q*>(args.q) + token * args.q_stride + head * args.q_head_stride;
  float query[kMaxEach];
  float out[kMaxEach] = {};
#pragma unroll
  for (int i = 0; i < kMaxEach; ++i)
    query[i] = lane + 32 * i < dim ? to_float(q[lane + 32 * i]) : 0.0F;
  float best = -INFINITY;
  float sum = 0;
  for (int key = begin + warp; key < end; key += kWarps) {
    const std::int64_t at =
        std::int64_t{args.slot_of(seq, key)} * args.slot_stride + kv_head * args.kv_head_stride;
    const KV* k = static_cast<const KV*>(args.k) + at;
    const KV* v = static_cast<const KV*>(args.v) + at;
    float score = 0;
#pragma unroll
    for (int i = 0; i < kMaxEach; ++i)
      if (lane + 32 * i < dim) score += query[i] * to_float(k[lane + 32 * i]);
    score = args.capped(warp_sum(score));
    const float next = fmaxf(best, score);
    const float old = expf(best - next);
    const float weight = expf(score - next);
    sum = sum * old + weight;
#pragma unroll
    for (int i = 0; i < kMaxEach; ++i)
      if (lane + 32 * i < dim) out[i] = out[i] * old + weight * to_float(v[lane + 32 * i]);
    best = next;
  }
#pragma unroll
  for (int i = 0; i < kMaxEach; ++i) values[warp][lane + 32 * i] = out[i];
  if (lane == 0) {
    maxima[warp] = best;
    sums[warp] = sum;
  }
  __syncthreads();
  float top = maxima[0];
  for (int w = 1; w < kWarps; ++w) top = fmaxf(top, maxima[w]);
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w] * expf(maxima[w] - top);
  Q* to = static_cast<Q*>(args.out) + token * args.out_stride + head * args.out_head_stride;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += 32 * kWarps) {
    float value = 0;
    for (int w = 0; w < kWarps; ++w) value += values[w][d] * expf(maxima[w] - top);
    to[d] = from_float<Q>(value / total);
  }
}

}  // namespace

void paged_attention_plain(const PagedAttentionArgs& args, Stream& stream) {
  const AttentionArgs job = attention_args(args);
  if (stream.dry() || args.q.dim(0) == 0) return;
  const dim3 grid(static_cast<unsigned>(args.q.dim(0)), static_cast<unsigned>(args.q.dim(1)));
  visit_attention_types(args.q.dtype, args.kv.dtype, [&]<class Q, class KV>() {
    plain_kernel<Q, KV><<<grid, 32 * kWarps, 0, as_cuda(stream).handle()>>>(job);
  });
  check_launch("paged_attention (plain)");
}

}  // namespace minisgl::kernels::gpu
