#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/math.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/ops.h"
#include "tensor/half.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;

void check_norm(const TensorView& weight, std::int64_t head_dim, const char* what) {
  if (weight.empty()) return;
  check_tensor(weight, {head_dim}, DType::kF32, what);
  check(weight.stride(0) == 1, what, " must be contiguous");
}

void check_args(const RopeStoreArgs& args) {
  check_tensor(args.q, {-1, -1, -1}, DType::kF32, "q");
  const std::int64_t tokens = args.q.dim(0);
  const std::int64_t head_dim = args.q.dim(2);
  check(head_dim % 2 == 0 && head_dim > 0 && head_dim <= kMaxHeadDim,
        "head_dim must be even and at most ", kMaxHeadDim, ", not ", head_dim);
  check(
      args.kv.dtype == DType::kF32 || args.kv.dtype == DType::kBF16 || args.kv.dtype == DType::kF16,
      "keys and values must be f32, bf16 or f16, not ", name(args.kv.dtype));
  check(args.kv.head_dim == head_dim, "q has head_dim=", head_dim, " but the KV pool has ",
        args.kv.head_dim);
  check_tensor(args.qkv, {tokens, (args.q.dim(1) + 2 * args.kv.num_heads) * head_dim}, DType::kF32,
               "qkv");
  check_tensor(args.positions, {tokens}, DType::kI32, "positions");
  check_tensor(args.out_locs, {tokens}, DType::kI32, "out_locs");
  if (!args.rope_table.empty()) {
    check_tensor(args.rope_table, {-1, -1}, DType::kF32, "rope_table");
    const std::int64_t rotated = args.rope_table.dim(1);
    check(rotated % 2 == 0 && rotated <= head_dim, "rope_table turns ", rotated,
          " dimensions; expected an even number up to head_dim=", head_dim);
    check(args.rope_table.stride(1) == 1, "rope_table must be contiguous in its last dimension");
  }
  check(args.qkv.stride(1) == 1 && args.q.stride(2) == 1 &&
            (tokens <= 1 || (args.positions.stride(0) == 1 && args.out_locs.stride(0) == 1)),
        "qkv, q, positions and out_locs must be contiguous in their last dimension");
  check_norm(args.q_norm, head_dim, "q_norm");
  check_norm(args.k_norm, head_dim, "k_norm");
}

void narrow(const float* from, std::int64_t n, BFloat16* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_bf16(from[i]);
}
void narrow(const float* from, std::int64_t n, Half* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_f16(from[i]);
}

/// Writes the keys that `job` makes and the values `v` of a token to its slot.
template <class T>
void store_kv(const CpuKernels& kernels, RopeHeads job, const float* v, const KvView& kv,
              std::int64_t slot) {
  T* k_to = reinterpret_cast<T*>(kv.k) + slot * kv.slot_stride;
  T* v_to = reinterpret_cast<T*>(kv.v) + slot * kv.slot_stride;
  if constexpr (std::is_same_v<T, float>) {
    job.y = k_to;
    job.y_stride = kv.head_stride;
    job.num_heads = kv.num_heads;
    kernels.rope(job);
    for (std::int64_t head = 0; head < kv.num_heads; ++head)
      std::memcpy(v_to + head * kv.head_stride, v + head * job.head_dim,
                  sizeof(float) * job.head_dim);
  } else {
    float rotated[kMaxHeadDim];
    job.y = rotated;
    job.num_heads = 1;
    for (std::int64_t head = 0; head < kv.num_heads; ++head) {
      kernels.rope(job);
      narrow(rotated, job.head_dim, k_to + head * kv.head_stride);
      narrow(v + head * job.head_dim, job.head_dim, v_to + head * kv.head_stride);
      job.x += job.x_stride;
    }
  }
}

void run_token(const CpuKernels& kernels, const RopeStoreArgs& args, std::int64_t token) {
  const std::int64_t head_dim = args.q.dim(2);
  const std::int64_t q_heads = args.q.dim(1);
  const float* qkv = args.qkv.as<float>() + token * args.qkv.stride(0);
  RopeHeads job{.x = qkv,
                .y = args.q.as<float>() + token * args.q.stride(0),
                .x_stride = head_dim,
                .y_stride = args.q.stride(1),
                .num_heads = q_heads,
                .head_dim = head_dim,
                .norm = args.q_norm.empty() ? nullptr : args.q_norm.as<float>(),
                .eps = args.norm_eps};
  if (!args.rope_table.empty()) {
    job.rotated_dims = args.rope_table.dim(1);
    job.cos_sin = args.rope_table.as<float>() +
                  args.positions.as<std::int32_t>()[token] * args.rope_table.stride(0);
  }
  kernels.rope(job);
  job.x = qkv + q_heads * head_dim;
  job.norm = args.k_norm.empty() ? nullptr : args.k_norm.as<float>();
  const float* v = qkv + (q_heads + args.kv.num_heads) * head_dim;
  visit_float_dtype(args.kv.dtype, [&]<class T>() {
    store_kv<T>(kernels, job, v, args.kv, args.out_locs.as<std::int32_t>()[token]);
  });
}

}  // namespace

Tensor make_rope_table(std::span<const float> inv_freq, std::int64_t num_positions, float scale) {
  const auto half = static_cast<std::int64_t>(inv_freq.size());
  Tensor table({num_positions, 2 * half}, DType::kF32);
  float* row = table.view().as<float>();
  for (std::int64_t position = 0; position < num_positions; ++position, row += 2 * half) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inv_freq[i];
      row[i] = static_cast<float>(std::cos(double{angle})) * scale;
      row[half + i] = static_cast<float>(std::sin(double{angle})) * scale;
    }
  }
  return table;
}

void qk_norm_rope_store(const RopeStoreArgs& args, Stream& stream) {
  check(stream.device().is_cpu() ||
            (!args.rope_table.empty() && args.rope_table.dim(1) == args.q.dim(2)),
        "layers without rope, and rope of a part of the head, are not supported on a GPU yet");
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::qk_norm_rope_store(args, stream);
  check_args(args);
  const std::int64_t tokens = args.q.dim(0);
  if (tokens == 0) return;
  as_cpu(stream).run([args, tokens](ThreadPool& pool) {
    constexpr std::int64_t kElementsPerPart = 1 << 14;
    const CpuKernels& kernels = cpu_kernels();
    const std::int64_t rows = std::max<std::int64_t>(1, kElementsPerPart / args.qkv.dim(1));
    pool.parallel_for(ceil_div(tokens, rows), [&](std::int64_t part) {
      const std::int64_t end = std::min(tokens, (part + 1) * rows);
      for (std::int64_t token = part * rows; token < end; ++token) run_token(kernels, args, token);
    });
  });
}

}  // namespace minisgl::kernels
