#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/rotation.cuh"
#include "kernels/cuda/vec.cuh"

namespace minisgl::kernels::gpu {
namespace {

constexpr int kThreads = 128;  // of a block
constexpr int kMaxHeadDim = 256;

struct RopeArgs {
  const void* qkv;
  void *q, *k, *v;
  const int *positions, *out_locs;
  const float *rope_table, *q_norm, *k_norm;  // norms: null for none
  std::int64_t qkv_stride, q_stride, q_head_stride, slot_stride, kv_head_stride, table_stride;
  std::int64_t tokens;
  int q_heads, kv_heads, head_dim;
  float eps;
};

/// Four consecutive numbers, which move together.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};
template <class T>
__device__ Four<T> load_four(const T* at) {
  return *reinterpret_cast<const Four<T>*>(at);
}

/// The lanes that share a head: each has four numbers of both halves.
__host__ __device__ inline int lanes_of(int head_dim) {
  int lanes = 1;
  while (8 * lanes < head_dim) lanes *= 2;
  return lanes;
}

/// Norm, rotation and store of heads, which stay in registers. The lanes of a head have kHeads
/// heads of one token, one after the other: there is more on its way than with one. Each lane holds
/// the pairs (d, d + head_dim / 2) of four consecutive d.
template <class T, class KV, int kHeads>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArgs args) {
  let_next_start();
  if (args.q_norm != nullptr) bring_near(args.q_norm, 4 * args.head_dim);
  if (args.k_norm != nullptr) bring_near(args.k_norm, 4 * args.head_dim);
  await_inputs();
  const int lanes = lanes_of(args.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int heads = args.q_heads + 2 * args.kv_heads;
  const int per_token = (heads + kHeads - 1) / kHeads;
  const std::int64_t item =
      std::int64_t{blockIdx.x} * (kThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t token = item / per_token;
  const int first = static_cast<int>(item % per_token) * kHeads;
  const int half = args.head_dim / 2;
  const int d = 4 * lane;
  const bool has_any = token < args.tokens && d < half;
  const auto has = [&](int i) { return has_any && first + i < heads; };

  Four<T> raw[kHeads][2];
  const T* const from = static_cast<const T*>(args.qkv) + token * args.qkv_stride + d;
#pragma unroll
  for (int i = 0; i < kHeads; ++i)
    if (has(i)) {
      raw[i][0] = load_four(from + std::int64_t{first + i} * args.head_dim);
      raw[i][1] = load_four(from + std::int64_t{first + i} * args.head_dim + half);
    }
  Four<float> cos{}, sin{};
  std::int64_t slot = 0;
  if (has_any) {
    const float* const cos_sin = args.rope_table + args.positions[token] * args.table_stride;
    cos = load_four(cos_sin + d);
    sin = load_four(cos_sin + half + d);
    slot = args.out_locs[token] * args.slot_stride;
  }

  Four<float> weight[2];
  const float* loaded = nullptr;
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = first + i;
    const bool is_q = head < args.q_heads;
    const bool is_v = head >= args.q_heads + args.kv_heads;
    Pair pairs[4] = {};
    if (has(i)) {
#pragma unroll
      for (int j = 0; j < 4; ++j) pairs[j] = {to_float(raw[i][0].v[j]), to_float(raw[i][1].v[j])};
    }
    float squares =
        (square_of(pairs[0]) + square_of(pairs[1])) + (square_of(pairs[2]) + square_of(pairs[3]));
    // All lanes of the warp take part, whatever they have.
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      squares += __shfl_xor_sync(~0U, squares, distance);
    if (!has(i)) continue;
    if (!is_v) {
      const float* const norm = is_q ? args.q_norm : args.k_norm;
      if (norm != nullptr) {
        if (norm != loaded) {
          weight[0] = load_four(norm + d);
          weight[1] = load_four(norm + half + d);
          loaded = norm;
        }
        const float scale = norm_scale(squares, args.head_dim, args.eps);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          pairs[j] = normed(pairs[j], scale, {weight[0].v[j], weight[1].v[j]});
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) pairs[j] = rotated(pairs[j], cos.v[j], sin.v[j]);
    }
    const auto store = [&]<class To>(To* to) {
      Four<To> low, high;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        low.v[j] = from_float<To>(pairs[j].low);
        high.v[j] = from_float<To>(pairs[j].high);
      }
      *reinterpret_cast<Four<To>*>(to + d) = low;
      *reinterpret_cast<Four<To>*>(to + half + d) = high;
    };
    if (is_q) {
      store(static_cast<T*>(args.q) + token * args.q_stride + head * args.q_head_stride);
      continue;
    }
    const int kv_head = head - args.q_heads - (is_v ? args.kv_heads : 0);
    store(static_cast<KV*>(is_v ? args.v : args.k) + slot + kv_head * args.kv_head_stride);
  }
}

template <class T, class KV, int kHeads>
void run(const RopeArgs& args, cudaStream_t stream) {
  const std::int64_t items = args.tokens * ceil_div(args.q_heads + 2 * args.kv_heads, kHeads);
  launch("qk_norm_rope_store", rope_kernel<T, KV, kHeads>,
         {dim3(blocks_for(items, kThreads / lanes_of(args.head_dim))), kThreads}, stream, args);
}

void check_args(const RopeStoreArgs& args) {
  check_attention_types(args.q.dtype, args.kv.dtype);
  check_tensor(args.q, {-1, -1, -1}, args.q.dtype, "q");
  const std::int64_t tokens = args.q.dim(0);
  const std::int64_t head_dim = args.q.dim(2);
  check(head_dim % 8 == 0 && head_dim > 0 && head_dim <= kMaxHeadDim,
        "head_dim must be a multiple of 8 and at most ", kMaxHeadDim, " on a GPU, not ", head_dim);
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
  const auto in_fours = [](const void* data, DType type,
                           std::initializer_list<std::int64_t> strides) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes_of(type, 4) == 0 &&
           std::ranges::all_of(strides, [](std::int64_t stride) { return stride % 4 == 0; });
  };
  check(in_fours(args.qkv.data, args.q.dtype, {args.qkv.stride(0)}) &&
            in_fours(args.q.data, args.q.dtype, {args.q.stride(0), args.q.stride(1)}) &&
            in_fours(args.kv.k, args.kv.dtype, {args.kv.slot_stride, args.kv.head_stride}) &&
            in_fours(args.kv.v, args.kv.dtype, {}) &&
            in_fours(args.rope_table.data, DType::kF32, {args.rope_table.stride(0)}) &&
            in_fours(args.q_norm.data, DType::kF32, {}) &&
            in_fours(args.k_norm.data, DType::kF32, {}),
        "heads of qkv, q, the KV pool, rope_table and norms must be aligned to four numbers");
}

}  // namespace

void qk_norm_rope_store(const RopeStoreArgs& args, Stream& stream) {
  check_args(args);
  const std::int64_t tokens = args.q.dim(0);
  if (stream.dry() || tokens == 0) return;
  const auto weight = [](const TensorView& norm) {
    return norm.empty() ? nullptr : norm.as<float>();
  };
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
                     .tokens = tokens,
                     .q_heads = static_cast<int>(args.q.dim(1)),
                     .kv_heads = args.kv.num_heads,
                     .head_dim = static_cast<int>(args.q.dim(2)),
                     .eps = args.norm_eps};
  // Several heads a lane where all multiprocessors have enough to do all the same.
  constexpr std::int64_t kManyHeads = 16384;
  const bool many = tokens * (job.q_heads + 2 * job.kv_heads) >= kManyHeads;
  visit_attention_types(args.q.dtype, args.kv.dtype, [&]<class T, class KV>() {
    const cudaStream_t on = as_cuda(stream).handle();
    if (many) {
      run<T, KV, 4>(job, on);
    } else {
      run<T, KV, 1>(job, on);
    }
  });
}

}  // namespace minisgl::kernels::gpu
