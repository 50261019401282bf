#include "kernels/moe.h"

#include <algorithm>
#include <bitset>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "kernels/cuda/ops.h"

namespace minisgl::kernels {
namespace {

constexpr std::int64_t kMaxExperts = 1024;

void check_routing(const Routing& routing, std::int64_t num_experts) {
  check_tensor(routing.experts, {-1, -1}, DType::kI32, "experts");
  const std::int64_t tokens = routing.experts.dim(0);
  const std::int64_t chosen = routing.experts.dim(1);
  check(chosen >= 1 && chosen <= num_experts && num_experts <= kMaxExperts, "cannot choose ",
        chosen, " of ", num_experts, " experts; there may be ", kMaxExperts);
  check_tensor(routing.weights, {tokens, chosen}, DType::kF32, "weights of experts");
  check_tensor(routing.rows, {tokens, chosen}, DType::kI32, "rows");
  check_tensor(routing.tokens, {tokens * chosen}, DType::kI32, "tokens");
  check_tensor(routing.offsets, {num_experts + 1}, DType::kI32, "offsets");
  for (const TensorView& view : {routing.experts, routing.weights, routing.rows, routing.tokens})
    check(tokens <= 1 || view.is_contiguous(), "a routing must be contiguous");
}

/// The `chosen` largest of logits [num_experts], and their weights, by ascending index.
void route_token(const float* logits, std::int64_t num_experts, std::int64_t chosen, bool normalize,
                 std::int32_t* experts, float* weights) {
  std::bitset<kMaxExperts> taken;
  float top = 0;     // of all
  float subset = 0;  // sum of the chosen, in descending order
  for (std::int64_t j = 0; j < chosen; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < num_experts; ++e)
      if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
    taken.set(best);
    if (j == 0) top = logits[best];
    subset += std::exp(logits[best] - top);
  }
  float sum = subset;
  if (!normalize) {
    sum = 0;
    for (std::int64_t e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - top);
  }
  for (std::int64_t e = 0, j = 0; e < num_experts; ++e) {
    if (!taken[e]) continue;
    experts[j] = static_cast<std::int32_t>(e);
    weights[j++] = std::exp(logits[e] - top) / sum;
  }
}

/// A stable counting sort of the pairs by expert.
void order_by_expert(const Routing& routing) {
  const std::int64_t pairs = routing.experts.numel();
  const std::int64_t chosen = routing.experts.dim(1);
  const std::int64_t num_experts = routing.offsets.dim(0) - 1;
  const auto* experts = routing.experts.as<std::int32_t>();
  auto* rows = routing.rows.as<std::int32_t>();
  auto* tokens = routing.tokens.as<std::int32_t>();
  auto* offsets = routing.offsets.as<std::int32_t>();
  std::fill_n(offsets, num_experts + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i) ++offsets[experts[i] + 1];
  for (std::int64_t e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] serves as the next free row of e, and ends where e + 1 began.
  for (std::int64_t i = 0; i < pairs; ++i) {
    rows[i] = offsets[experts[i]]++;
    tokens[rows[i]] = static_cast<std::int32_t>(i / chosen);
  }
  std::copy_backward(offsets, offsets + num_experts, offsets + num_experts + 1);
  offsets[0] = 0;
}

}  // namespace

void route_tokens(TensorView logits, bool normalize, const Routing& routing, Stream& stream) {
  check_tensor(logits, {routing.experts.dim(0), -1}, DType::kF32, "router logits");
  check(logits.dim(0) <= 1 || logits.is_contiguous(), "router logits must be contiguous");
  check_routing(routing, logits.dim(1));
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::route_tokens(logits, normalize, routing, stream);
  if (logits.dim(0) == 0) return;
  as_cpu(stream).run([logits, normalize, routing](ThreadPool& pool) {
    constexpr std::int64_t kTokensPerPart = 8;
    const std::int64_t tokens = logits.dim(0);
    const std::int64_t num_experts = logits.dim(1);
    const std::int64_t chosen = routing.experts.dim(1);
    pool.parallel_for(ceil_div(tokens, kTokensPerPart), [&](std::int64_t part) {
      const std::int64_t end = std::min(tokens, (part + 1) * kTokensPerPart);
      for (std::int64_t t = part * kTokensPerPart; t < end; ++t)
        route_token(logits.as<float>() + t * num_experts, num_experts, chosen, normalize,
                    routing.experts.as<std::int32_t>() + t * chosen,
                    routing.weights.as<float>() + t * chosen);
    });
    order_by_expert(routing);
  });
}

void combine_experts(TensorView x, const Routing& routing, TensorView y, Stream& stream) {
  if constexpr (cuda::kBuilt)
    if (!stream.device().is_cpu()) return gpu::combine_experts(x, routing, y, stream);
  const std::int64_t chosen = routing.rows.dim(1);
  check_tensor(y, {routing.rows.dim(0), -1}, DType::kF32, "y");
  check_tensor(x, {routing.rows.numel(), y.dim(1)}, DType::kF32, "x");
  check(x.stride(1) == 1 && y.stride(1) == 1, "the columns of x and y must be contiguous");
  if (y.numel() == 0) return;
  as_cpu(stream).run([x, routing, y, chosen](ThreadPool& pool) {
    constexpr std::int64_t kWidth = 256;  // columns of a part: the sums stay in the L1 cache
    const std::int64_t blocks = ceil_div(y.dim(1), kWidth);
    pool.parallel_for(y.dim(0) * blocks, [&](std::int64_t part) {
      const std::int64_t t = part / blocks;
      const std::int64_t begin = part % blocks * kWidth;
      const std::int64_t width = std::min(kWidth, y.dim(1) - begin);
      float* out = y.as<float>() + t * y.stride(0) + begin;
      std::fill_n(out, width, 0.0F);
      for (std::int64_t j = 0; j < chosen; ++j) {
        const float weight = routing.weights.as<float>()[t * chosen + j];
        const float* from =
            x.as<float>() + routing.rows.as<std::int32_t>()[t * chosen + j] * x.stride(0) + begin;
        for (std::int64_t i = 0; i < width; ++i) out[i] += weight * from[i];
      }
    });
  });
}

}  // namespace minisgl::kernels
