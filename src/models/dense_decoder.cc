#include "models/dense_decoder.h"

#include <deque>
#include <string>

#include "kernels/gather.h"
#include "kernels/rope.h"
#include "layers/attention.h"
#include "layers/embedding.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/rope.h"

namespace minisgl::models {
namespace {

struct DecoderLayer {
  DecoderLayer(const layers::Weights& w, const ModelConfig& c, TensorView rope_table,
               std::int64_t i)
      : input_norm(w.scope("input_layernorm"), c.hidden_size, c.rms_norm_eps),
        attention(w.scope("self_attn"), c, rope_table, i),
        post_norm(w.scope("post_attention_layernorm"), c.hidden_size, c.rms_norm_eps),
        mlp(w.scope("mlp"), c, i) {}

  /// x [num_tokens, hidden] is what the layer before added, not yet part of `residual`; replaced
  /// by what this layer's MLP adds.
  void forward(TensorView x, TensorView residual, ForwardContext& ctx) const {
    input_norm.add_then_norm(x, residual, ctx);
    attention.forward(x, x, ctx);
    post_norm.add_then_norm(x, residual, ctx);
    mlp.forward(x, x, ctx);
  }

  layers::RmsNorm input_norm;
  layers::RopeAttention attention;
  layers::RmsNorm post_norm;
  layers::FeedForward mlp;
};

class DenseDecoder final : public Model {
 public:
  DenseDecoder(const layers::Weights& w, const ModelConfig& c, std::int64_t num_positions)
      : config_(c),
        rope_table_(
            kernels::make_rope_table(rope_inverse_frequencies(c.rope, c.head_dim, num_positions),
                                     num_positions, static_cast<float>(c.rope.attention_factor))),
        embed_(w.scope("model.embed_tokens"), c.vocab_size, c.hidden_size),
        norm_(w.scope("model.norm"), c.hidden_size, c.rms_norm_eps),
        head_(c.tie_word_embeddings ? std::make_unique<layers::LmHead>(embed_)
                                    : std::make_unique<layers::LmHead>(
                                          w.scope("lm_head"), c.vocab_size, c.hidden_size)) {
    for (std::int64_t i = 0; i < c.num_layers; ++i)
      layers_.emplace_back(w.scope("model.layers." + std::to_string(i)), c, rope_table_.view(), i);
  }

  const ModelConfig& config() const override { return config_; }

  void forward(ForwardContext& ctx, TensorView logits) const override {
    const ScratchScope scope(ctx.scratch);
    const std::int64_t tokens = ctx.inputs->input_ids.dim(0);
    const Shape hidden{tokens, config_.hidden_size};
    const TensorView x = ctx.scratch.alloc(hidden, DType::kF32);
    const TensorView residual = ctx.scratch.alloc(hidden, DType::kF32);
    embed_.forward(ctx.inputs->input_ids, residual, ctx);
    // The first layer adds nothing yet: its norm reads the embedding itself.
    layers_.front().input_norm.forward(residual, x, ctx);
    layers_.front().attention.forward(x, x, ctx);
    layers_.front().post_norm.add_then_norm(x, residual, ctx);
    layers_.front().mlp.forward(x, x, ctx);
    for (std::size_t i = 1; i < layers_.size(); ++i) layers_[i].forward(x, residual, ctx);
    head_of(x, residual, logits, ctx);
  }

 private:
  /// Only the tokens whose logits are wanted go through the last norm and the head.
  void head_of(TensorView x, TensorView residual, TensorView logits, ForwardContext& ctx) const {
    const std::int64_t rows = ctx.inputs->logit_rows.dim(0);
    if (rows == 0) return;
    const TensorView last_x = ctx.scratch.alloc({rows, config_.hidden_size}, DType::kF32);
    const TensorView last_residual = ctx.scratch.alloc({rows, config_.hidden_size}, DType::kF32);
    kernels::gather_rows(x, ctx.inputs->logit_rows, last_x, ctx.stream);
    kernels::gather_rows(residual, ctx.inputs->logit_rows, last_residual, ctx.stream);
    norm_.add_then_norm(last_x, last_residual, ctx);
    head_->forward(last_x, logits, ctx);
  }

  ModelConfig config_;
  Tensor rope_table_;
  layers::VocabEmbedding embed_;
  layers::RmsNorm norm_;
  std::unique_ptr<layers::LmHead> head_;
  std::deque<DecoderLayer> layers_;
};

}  // namespace

std::unique_ptr<Model> make_dense_decoder(const layers::Weights& w, const ModelConfig& config,
                                          std::int64_t num_positions) {
  return std::make_unique<DenseDecoder>(w, config, num_positions);
}

}  // namespace minisgl::models
