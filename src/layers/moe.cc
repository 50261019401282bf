#include "layers/moe.h"

#include <string>

#include "kernels/activation.h"
#include "kernels/gather.h"
#include "kernels/moe.h"
#include "layers/linear.h"

namespace minisgl::layers {
namespace {

/// y = x W^T for the experts of sorted rows. The content of x is lost: in bf16 arithmetic it is
/// rounded where it lies.
void multiply_grouped(TensorView x, TensorView offsets,
                      std::span<const kernels::PackedExperts* const> weights, TensorView y,
                      ForwardContext& ctx) {
  if (ctx.compute == Compute::kBf16) kernels::round_to_bf16(x, x, ctx.stream);
  const ScratchScope scope(ctx.scratch);
  const TensorView workspace =
      ctx.scratch.alloc({kernels::grouped_linear_workspace_bytes(weights, x.dim(0))}, DType::kU8);
  kernels::grouped_linear({.x = x, .offsets = offsets, .weights = weights, .y = y}, workspace,
                          ctx.stream);
}

}  // namespace

MoeMlp::MoeMlp(const Weights& w, std::int64_t hidden, const MoeConfig& config)
    : config_(config),
      router_(w.scope("gate").matrix("weight", config.num_experts, hidden, Split::kNone)),
      gate_(config.num_experts),
      up_(config.num_experts),
      down_(config.num_experts) {
  const std::int64_t intermediate = config.intermediate_size;
  for (std::int64_t i = 0; i < config.num_experts; ++i) {
    const Weights expert = w.scope("experts").scope(std::to_string(i));
    gate_.add(expert.scope("gate_proj").matrix("weight", intermediate, hidden, Split::kOut));
    up_.add(expert.scope("up_proj").matrix("weight", intermediate, hidden, Split::kOut));
    down_.add(expert.scope("down_proj").matrix("weight", hidden, intermediate, Split::kIn));
  }
}

void MoeMlp::forward(TensorView x, TensorView y, ForwardContext& ctx) const {
  const ScratchScope scope(ctx.scratch);
  const std::int64_t tokens = x.dim(0);
  const std::int64_t chosen = config_.experts_per_token;
  const std::int64_t rows = tokens * chosen;
  const TensorView logits = ctx.scratch.alloc({tokens, config_.num_experts}, DType::kF32);
  const kernels::PackedMatrix* const router = &router_;
  // Exact in bf16 arithmetic too: a rounding here may choose another expert, and it costs nothing.
  kernels::linear(x, {&router, 1}, {}, logits, ctx.stream);
  const kernels::Routing routing{
      .experts = ctx.scratch.alloc({tokens, chosen}, DType::kI32),
      .weights = ctx.scratch.alloc({tokens, chosen}, DType::kF32),
      .rows = ctx.scratch.alloc({tokens, chosen}, DType::kI32),
      .tokens = ctx.scratch.alloc({rows}, DType::kI32),
      .offsets = ctx.scratch.alloc({config_.num_experts + 1}, DType::kI32)};
  kernels::route_tokens(logits, config_.norm_topk_prob, routing, ctx.stream);

  const TensorView sorted = ctx.scratch.alloc({rows, x.dim(1)}, ctx.activations);
  kernels::gather_rows(x, routing.tokens, sorted, ctx.stream);
  const TensorView gate_up = ctx.scratch.alloc({rows, gate_.rows() + up_.rows()}, ctx.activations);
  const std::array<const kernels::PackedExperts*, 2> both{&gate_, &up_};
  multiply_grouped(sorted, routing.offsets, both, gate_up, ctx);
  const TensorView activated = ctx.scratch.alloc({rows, gate_.rows()}, ctx.activations);
  kernels::silu_and_mul(gate_up, activated, ctx.stream);
  const kernels::PackedExperts* const down = &down_;
  multiply_grouped(activated, routing.offsets, {&down, 1}, sorted, ctx);
  kernels::combine_experts(sorted, routing, y, ctx.stream);
  sum_over_ranks(y, ctx);
}

}  // namespace minisgl::layers
