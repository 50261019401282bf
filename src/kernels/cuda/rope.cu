#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kWarps = 4;     // of a block
constexpr int kMaxPairs = 4;  // of a lane: head_dim 256 at most
constexpr int kMaxHeadDim = 64 * kMaxPairs;

struct RopeArgs {
  const void* qkv;
  void *q, *k, *v;
  const int *positions, *out_locs;
  const float *rope_table, *q_norm, *k_norm;  // norms: null for none
  std::int64_t qkv_stride, q_stride, q_head_stride, slot_stride, kv_head_stride, table_stride;
  std::int64_t num_items;  // tokens * heads of all three kinds
  int q_heads, kv_heads, head_dim;
  float eps;
};

/// One warp a head: norm, rotation and store in registers, lane l holding the pairs
/// (l + 32 i, l + 32 i + head_dim / 2).
template <class T, class KV>
__global__ void rope_kernel(RopeArgs args) {
  let_next_start();
  await_inputs();
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= args.num_items) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int heads = args.q_heads + 2 * args.kv_heads;
  const std::int64_t token = item / heads;
  const int head = static_cast<int>(item % heads);
  const int half = args.head_dim / 2;
  const bool is_q = head < args.q_heads;
  const bool is_v = head >= args.q_heads + args.kv_heads;

  const T* from = static_cast<const T*>(args.qkv) + token * args.qkv_stride +
                  std::int64_t{head} * args.head_dim;
  float low[kMaxPairs];
  float high[kMaxPairs];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const int d = lane + 32 * i;
    low[i] = d < half ? to_float(from[d]) : 0.0F;
    high[i] = d < half ? to_float(from[d + half]) : 0.0F;
    squares += low[i] * low[i] + high[i] * high[i];
  }
  const float* norm = is_q ? args.q_norm : args.k_norm;
  if (!is_v && norm != nullptr) {
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(args.head_dim) + args.eps);
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
      const int d = lane + 32 * i;
      if (d >= half) break;
      low[i] *= scale * norm[d];
      high[i] *= scale * norm[d + half];
    }
  }
  if (!is_v) {
    const float* cos_sin = args.rope_table + args.positions[token] * args.table_stride;
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
      const int d = lane + 32 * i;
      if (d >= half) break;
      const float cos = cos_sin[d];
      const float sin = cos_sin[half + d];
      const float rotated = low[i] * cos - high[i] * sin;
      high[i] = high[i] * cos + low[i] * sin;
      low[i] = rotated;
    }
  }
  const auto store = [&]<class To>(To* to) {
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
      const int d = lane + 32 * i;
      if (d >= half) break;
      to[d] = from_float<To>(low[i]);
      to[d + half] = from_float<To>(high[i]);
    }
  };
  if (is_q) {
    store(static_cast<T*>(args.q) + token * args.q_stride + head * args.q_head_stride);
    return;
  }
  const int kv_head = head - args.q_heads - (is_v ? args.kv_heads : 0);
  const std::int64_t at = args.out_locs[token] * args.slot_stride + kv_head * args.kv_head_stride;
  store(static_cast<KV*>(is_v ? args.v : args.k) + at);
}

void check_args(const RopeStoreArgs& args) {
  check_attention_types(args.q.dtype, args.kv.dtype);
  check_tensor(args.q, {-1, -1, -1}, args.q.dtype, "q");
  const std::int64_t tokens = args.q.dim(0);
  const std::int64_t head_dim = args.q.dim(2);
  check(head_dim % 2 == 0 && head_dim > 0 && head_dim <= kMaxHeadDim,
        "head_dim must be even and at most ", kMaxHeadDim, ", not ", head_dim);
  check(args.kv.head_dim == head_dim, "q has head_dim=", head_dim, " but the KV pool has ",
        args.kv.head_dim);
  check_tensor(args.qkv, {tokens, (args.q.dim(1) + 2 * args.kv.num_heads) * head_dim}, args.q.dtype,
               "qkv");
  check_tensor(args.positions, {tokens}, DType::kI32, "positions");
  check_tensor(args.out_locs, {tokens}, DType::kI32, "out_locs");
  check_tensor(args.rope_table, {-1, head_dim}, DType::kF32, "rope_table");
  check(args.qkv.stride(1) == 1 && args.q.stride(2) == 1 && args.rope_table.stride(1) == 1 &&
            (tokens <= 1 || (args.positions.stride(0) == 1 && args.out_locs.stride(0) == 1)),
        "qkv, q, positions, out_locs and rope_table must be contiguous in their last dimension");
  for (const TensorView& norm : {args.q_norm, args.k_norm})
    if (!norm.empty()) check_tensor(norm, {head_dim}, DType::kF32, "q_norm or k_norm");
}

}  // namespace

void qk_norm_rope_store(const RopeStoreArgs& args, Stream& stream) {
  check_args(args);
  const std::int64_t tokens = args.q.dim(0);
  if (stream.dry() || tokens == 0) return;
  const auto weight = [](const TensorView& norm) {
    return norm.empty() ? nullptr : norm.as<float>();
  };
  const std::int64_t items = tokens * (args.q.dim(1) + 2 * args.kv.num_heads);
  const RopeArgs job{.qkv = args.qkv.data,
                     .q = args.q.data,
                     .k = args.kv.k,
                     .v = args.kv.v,
                     .positions = args.positions.as<std::int32_t>(),
                     .out_locs = args.out_locs.as<std::int32_t>(),
                     .rope_table = args.rope_table.as<float>(),
                     .q_norm = weight(args.q_norm),
                     .k_norm = weight(args.k_norm),
                     .qkv_stride = args.qkv.stride(0),
                     .q_stride = args.q.stride(0),
                     .q_head_stride = args.q.stride(1),
                     .slot_stride = args.kv.slot_stride,
                     .kv_head_stride = args.kv.head_stride,
                     .table_stride = args.rope_table.stride(0),
                     .num_items = items,
                     .q_heads = static_cast<int>(args.q.dim(1)),
                     .kv_heads = args.kv.num_heads,
                     .head_dim = static_cast<int>(args.q.dim(2)),
                     .eps = args.norm_eps};
  visit_attention_types(args.q.dtype, args.kv.dtype, [&]<class T, class KV>() {
    launch("qk_norm_rope_store", rope_kernel<T, KV>, {dim3(blocks_for(items, kWarps)), 32 * kWarps},
           as_cuda(stream).handle(), job);
  });
}

}  // namespace minisgl::kernels::gpu
