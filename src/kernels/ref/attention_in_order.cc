// Attention as a specification: which numbers are added in which order. Tiles of 64 keys and splits
// of 512 are counted from position 0 of the sequence, so that nothing here depends on which tokens
// are computed together.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"
#include "kernels/cpu/attention_call.h"
#include "kernels/ref/reference.h"
#include "tensor/half.h"

namespace minisgl::kernels::ref {
namespace {

/// What the instruction set in use decides: the lanes of the sum of weights, whether a * b + c is
/// rounded once, and its exponential.
struct Arithmetic {
  const CpuKernels& kernels = cpu_kernels();

  float multiply_add(float a, float b, float c) const {
    return kernels.fused ? std::fma(a, b, c) : a * b + c;
  }
  float exp(float x) const {
    float y = 0;
    kernels.exp(&x, 1, &y);
    return y;
  }
};

constexpr int kMaxLanes = 16;

/// Softmax so far: values / sum is the attention to the keys so far, weights being relative to max.
struct State {
  explicit State(std::span<float> memory) : values(memory) {
    std::fill(values.begin(), values.end(), 0.0F);
  }
  std::span<float> values;  // [head_dim]
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

/// One query head of one token and the keys and values of its KV head.
template <class T>
struct Query {
  const float* q;
  const T* k;
  const T* v;
  const std::int32_t* pages;
  const PagedAttentionArgs& args;
  std::int32_t first_key, end_key;  // keys that it sees

  std::int64_t offset_of(std::int32_t key) const {
    const std::int32_t page_size = args.kv.page_size;
    return (std::int64_t{pages[key / page_size]} * page_size + key % page_size) *
           args.kv.slot_stride;
  }
};

/// scale goes to the query first; the product is summed over the dimensions in ascending order.
template <class T>
float score(const Query<T>& query, std::int32_t key, const Arithmetic& math) {
  const T* k = query.k + query.offset_of(key);
  float sum = 0;
  for (std::int32_t d = 0; d < query.args.kv.head_dim; ++d)
    sum = math.multiply_add(query.q[d] * query.args.scale, to_f32(k[d]), sum);
  if (query.args.softcap != 0) math.kernels.softcap(&sum, 1, query.args.softcap);
  return sum;
}

/// One tile: the keys [begin, end). Weight i of the tile goes to lane i % lanes of the sum.
template <class T>
void add_tile(const Query<T>& query, std::int32_t begin, std::int32_t end, const Arithmetic& math,
              State& split, std::array<float, kMaxLanes>& lanes) {
  std::array<float, kAttentionTile> weights;
  float max = split.max;
  for (std::int32_t key = begin; key < end; ++key) {
    const float s = score(query, key, math);
    weights[key % kAttentionTile] = s;
    if (s > max) max = s;
  }
  const float factor = math.exp(split.max - max);
  split.max = max;
  for (float& lane : lanes) lane *= factor;
  for (std::int32_t key = begin; key < end; ++key) {
    float& weight = weights[key % kAttentionTile];
    weight = math.exp(weight - max);
    lanes[key % kAttentionTile % math.kernels.lanes] += weight;
  }
  for (float& value : split.values) value *= factor;
  for (std::int32_t key = begin; key < end; ++key) {
    const T* v = query.v + query.offset_of(key);
    for (std::size_t d = 0; d < split.values.size(); ++d)
      split.values[d] =
          math.multiply_add(weights[key % kAttentionTile], to_f32(v[d]), split.values[d]);
  }
}

/// One split: the tiles of the keys [begin, end). Lanes are added by halves.
template <class T>
State attend_split(const Query<T>& query, std::int32_t begin, std::int32_t end,
                   const Arithmetic& math, std::span<float> memory) {
  State split(memory);
  std::array<float, kMaxLanes> lanes{};
  while (begin < end) {
    const std::int32_t tile_end = std::min(end, round_down(begin, kAttentionTile) + kAttentionTile);
    add_tile(query, begin, tile_end, math, split, lanes);
    begin = tile_end;
  }
  for (int half = math.kernels.lanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  split.sum = lanes[0];
  return split;
}

/// The next split is added to those before it. Products and sums are rounded apart.
void merge(const State& next, const Arithmetic& math, State& total) {
  const float max = std::max(next.max, total.max);
  const float old_factor = math.exp(total.max - max);
  const float new_factor = math.exp(next.max - max);
  total.max = max;
  total.sum = total.sum * old_factor + next.sum * new_factor;
  for (std::size_t d = 0; d < total.values.size(); ++d)
    total.values[d] = total.values[d] * old_factor + next.values[d] * new_factor;
}

/// `memory` holds two states' values: of all splits so far, and of the one that is added to them.
template <class T>
void attend(const Query<T>& query, const Arithmetic& math, std::span<float> memory, float* out) {
  const std::size_t head_dim = memory.size() / 2;
  const auto end_of_split = [&](std::int32_t key) {
    return std::min(query.end_key, round_down(key, kAttentionSplit) + kAttentionSplit);
  };
  std::int32_t begin = end_of_split(query.first_key);
  State total = attend_split(query, query.first_key, begin, math, memory.first(head_dim));
  while (begin < query.end_key) {
    const std::int32_t end = end_of_split(begin);
    merge(attend_split(query, begin, end, math, memory.last(head_dim)), math, total);
    begin = end;
  }
  const float inverse = 1.0F / total.sum;
  for (std::size_t d = 0; d < total.values.size(); ++d) out[d] = total.values[d] * inverse;
}

template <class T>
void attend_all(const PagedAttentionArgs& args, std::span<float> memory) {
  const Arithmetic math;
  const std::int64_t group = args.q.dim(1) / args.kv.num_heads;
  const auto* cu_seqlens_q = args.cu_seqlens_q.as<std::int32_t>();
  for (std::int64_t seq = 0; seq < args.cache_seqlens.dim(0); ++seq) {
    const std::int32_t keys = args.cache_seqlens.as<std::int32_t>()[seq];
    for (std::int32_t token = cu_seqlens_q[seq]; token < cu_seqlens_q[seq + 1]; ++token) {
      const std::int32_t end = keys - (cu_seqlens_q[seq + 1] - token) + 1;
      for (std::int64_t head = 0; head < args.q.dim(1); ++head) {
        const std::int64_t kv_offset = head / group * args.kv.head_stride;
        attend<T>({.q = args.q.as<float>() + token * args.q.stride(0) + head * args.q.stride(1),
                   .k = reinterpret_cast<const T*>(args.kv.k) + kv_offset,
                   .v = reinterpret_cast<const T*>(args.kv.v) + kv_offset,
                   .pages = args.page_table.as<std::int32_t>() + seq * args.page_table.stride(0),
                   .args = args,
                   .first_key = first_key_seen(end, args.window_tokens),
                   .end_key = end},
                  math, memory,
                  args.out.as<float>() + token * args.out.stride(0) + head * args.out.stride(1));
      }
    }
  }
}

}  // namespace

void paged_attention_in_order(const PagedAttentionArgs& args, TensorView workspace) {
  check(workspace.numel() == 2 * std::int64_t{args.kv.head_dim}, "a workspace of 2 * ",
        args.kv.head_dim, " numbers is needed, not of ", workspace.numel());
  const std::span memory(workspace.as<float>(), static_cast<std::size_t>(workspace.numel()));
  visit_float_dtype(args.kv.dtype, [&]<class T>() { attend_all<T>(args, memory); });
}

}  // namespace minisgl::kernels::ref
