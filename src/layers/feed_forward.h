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

  /// x [num_tokens, hidden] -> y [num_tokens, hidden]; y may be x.
  void forward(TensorView x, TensorView y, ForwardContext& ctx) const {
    if (sparse_) {
      sparse_->forward(x, y, ctx);
    } else {
      dense_->forward(x, y, ctx);
    }
  }

 private:
  std::optional<GatedMlp> dense_;
  std::optional<MoeMlp> sparse_;
};

}  // namespace minisgl::layers
