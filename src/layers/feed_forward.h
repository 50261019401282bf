#pragma once

#include <optional>

#include "core/model_config.h"
#include "layers/mlp.h"
#include "layers/moe.h"

namespace minisgl::layers {

/// The MLP of one layer of a model: dense, or a mixture of experts.
class FeedForward {
 public:
  /// Takes its weights from `w`; throws Error naming the tensor that is missing or misshapen.
  FeedForward(const Weights& w, const ModelConfig& config, std::int64_t layer) {
    if (config.is_sparse(layer)) {
      sparse_.emplace(w, config.hidden_size, config.moe);
    } else {
      dense_.emplace(w, config.hidden_size, config.intermediate_size, config.activation);
    }
  }

  /// Whether forward() takes a norm with its input and adds to the residual stream.
  bool fuses(const ForwardContext& ctx) const { return !sparse_ && fuses_products(ctx); }

  /// x [num_tokens, hidden] -> output [num_tokens, hidden], whose memory may be x's.
  void forward(const Normed& x, const BranchOutput& output, ForwardContext& ctx) const {
    if (sparse_) {
      sparse_->forward(x.x, output.y, ctx);
    } else {
      dense_->forward(x, output, ctx);
    }
  }

 private:
  std::optional<GatedMlp> dense_;
  std::optional<MoeMlp> sparse_;
};

}  // namespace minisgl::layers
