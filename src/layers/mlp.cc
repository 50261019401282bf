#include "layers/mlp.h"

#include <array>

#include "kernels/activation.h"

namespace minisgl::layers {
namespace {

MergedColumnLinear gate_up(const Weights& w, std::int64_t hidden, std::int64_t intermediate) {
  const std::array<Projection, 2> parts{{{"gate_proj", intermediate}, {"up_proj", intermediate}}};
  return MergedColumnLinear(w, hidden, parts, /*has_bias=*/false);
}

}  // namespace

GatedMlp::GatedMlp(const Weights& w, std::int64_t hidden, std::int64_t intermediate,
                   Activation activation)
    : gate_up_(gate_up(w, hidden, intermediate)),
      down_(w.scope("down_proj"), hidden, intermediate),
      activation_(activation) {}

void GatedMlp::forward(const Normed& x, const BranchOutput& output, ForwardContext& ctx) const {
  const ScratchScope scope(ctx.scratch);
  const std::int64_t tokens = x.num_tokens();
  const TensorView activated =
      ctx.scratch.alloc({tokens, gate_up_.out_size() / 2}, ctx.activations);
  if (fuses_products(ctx)) {
    gate_up_.forward_gated(x, activation_, activated, ctx);
  } else {
    const TensorView gate_up = ctx.scratch.alloc({tokens, gate_up_.out_size()}, ctx.activations);
    gate_up_.forward(x, gate_up, ctx);
    switch (activation_) {
      case Activation::kSilu: kernels::silu_and_mul(gate_up, activated, ctx.stream); break;
      case Activation::kGeluTanh: kernels::gelu_tanh_and_mul(gate_up, activated, ctx.stream); break;
    }
  }
  down_.forward(activated, output, ctx);
}

}  // namespace minisgl::layers
