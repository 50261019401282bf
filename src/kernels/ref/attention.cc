#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_call.h"
#include "kernels/ref/reference.h"
#include "tensor/half.h"

namespace minisgl::kernels::ref {
namespace {

/// One query head over the keys in `slots`.
template <class T>
void attend(const float* q, const KvView& kv, std::int64_t head,
            const std::vector<std::int64_t>& slots, double scale, double cap, float* out) {
  const T* k = reinterpret_cast<const T*>(kv.k) + head * kv.head_stride;
  const T* v = reinterpret_cast<const T*>(kv.v) + head * kv.head_stride;
  std::vector<double> weights;
  for (const std::int64_t slot : slots) {
    double score = 0;
    for (std::int32_t d = 0; d < kv.head_dim; ++d)
      score += double{q[d]} * to_f32(k[slot * kv.slot_stride + d]);
    score *= scale;
    weights.push_back(cap == 0 ? score : cap * std::tanh(score / cap));
  }
  const double max = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  for (std::int32_t d = 0; d < kv.head_dim; ++d) {
    double value = 0;
    for (std::size_t i = 0; i < slots.size(); ++i)
      value += weights[i] * to_f32(v[slots[i] * kv.slot_stride + d]);
    out[d] = static_cast<float>(value / sum);
  }
}

}  // namespace

void paged_attention(const PagedAttentionArgs& args) {
  const std::int32_t page_size = args.kv.page_size;
  const std::int64_t group = args.q.dim(1) / args.kv.num_heads;
  const auto* cu_seqlens_q = args.cu_seqlens_q.as<std::int32_t>();
  for (std::int64_t seq = 0; seq < args.cache_seqlens.dim(0); ++seq) {
    const auto* pages = args.page_table.as<std::int32_t>() + seq * args.page_table.stride(0);
    const std::int32_t keys = args.cache_seqlens.as<std::int32_t>()[seq];
    for (std::int32_t token = cu_seqlens_q[seq]; token < cu_seqlens_q[seq + 1]; ++token) {
      const std::int32_t visible = keys - (cu_seqlens_q[seq + 1] - token) + 1;
      std::vector<std::int64_t> slots;
      for (std::int32_t key = first_key_seen(visible, args.window_tokens); key < visible; ++key)
        slots.push_back(std::int64_t{pages[key / page_size]} * page_size + key % page_size);
      for (std::int64_t head = 0; head < args.q.dim(1); ++head) {
        visit_float_dtype(args.kv.dtype, [&]<class T>() {
          attend<T>(args.q.as<float>() + token * args.q.stride(0) + head * args.q.stride(1),
                    args.kv, head / group, slots, args.scale, args.softcap,
                    args.out.as<float>() + token * args.out.stride(0) + head * args.out.stride(1));
        });
      }
    }
  }
}

}  // namespace minisgl::kernels::ref
