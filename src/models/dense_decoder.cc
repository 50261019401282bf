#include "models/dense_decoder.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/elementwise.h"
#include "kernels/gather.h"
#include "kernels/rope.h"
#include "layers/attention.h"
#include "layers/embedding.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "models/rope.h"

namespace minisgl::models {
namespace {

/// Names of a layer's norms, in transformers' words: what post_attention_layernorm follows depends
/// on the placement. Empty: the layer has no such norm.
struct NormNames {
  std::string_view before_attention, after_attention, before_mlp, after_mlp;
};

NormNames norm_names(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::kBefore: return {"input_layernorm", "", "post_attention_layernorm", ""};
    case NormPlacement::kAfter:
      return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
    case NormPlacement::kBoth:
      return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
              "post_feedforward_layernorm"};
  }
  __builtin_unreachable();
}

std::optional<layers::RmsNorm> optional_norm(const layers::Weights& w, const ModelConfig& c,
                                             std::string_view name) {
  if (name.empty()) return std::nullopt;
  return layers::RmsNorm(w.scope(name), c.hidden_size, c.rms_norm_eps, {.offset = c.norm_offset});
}

/// What flows through the layers.
struct Hidden {
  TensorView x;         ///< [num_tokens, hidden] activations
  TensorView residual;  ///< [num_tokens, hidden] f32: the residual stream
  /// What x holds is still to be added to residual.
  bool is_pending = false;
};

class DecoderLayer {
 public:
  DecoderLayer(const layers::Weights& w, const ModelConfig& c, TensorView rope_table,
               std::int64_t i)
      : before_attention_(optional_norm(w, c, norm_names(c.norms).before_attention)),
        attention_(w.scope("self_attn"), c, rope_table, i),
        after_attention_(optional_norm(w, c, norm_names(c.norms).after_attention)),
        before_mlp_(optional_norm(w, c, norm_names(c.norms).before_mlp)),
        mlp_(w.scope("mlp"), c, i),
        after_mlp_(optional_norm(w, c, norm_names(c.norms).after_mlp)),
        residual_scale_(c.residual_scale),
        is_whole_(w.shard().world == 1) {}

  void forward(Hidden& h, ForwardContext& ctx) const {
    const bool fuses = layers::fuses_products(ctx);
    const layers::Normed attention_input = input(before_attention_, h, fuses, ctx);
    attention_.forward(attention_input, output(after_attention_, h, fuses), ctx);
    if (after_attention_) after_attention_->forward(h.x, h.x, ctx);
    const bool mlp_fuses = mlp_.fuses(ctx);
    const layers::Normed mlp_input = input(before_mlp_, h, mlp_fuses, ctx);
    mlp_.forward(mlp_input, output(after_mlp_, h, mlp_fuses), ctx);
    if (after_mlp_) after_mlp_->forward(h.x, h.x, ctx);
  }

 private:
  /// norm(residual), or residual itself without a norm; what is pending is added first. Where the
  /// branch `fuses`, it may be left to it to apply the norm.
  layers::Normed input(const std::optional<layers::RmsNorm>& norm, Hidden& h, bool fuses,
                       ForwardContext& ctx) const {
    if (!h.is_pending) {
      if (norm && fuses) return {h.residual, *norm};
      if (norm) {
        norm->forward(h.residual, h.x, ctx);
      } else {
        ctx.stream.copy(h.x.data, h.residual.data, static_cast<std::size_t>(h.x.bytes()));
      }
    } else if (norm) {
      norm->add_then_norm(h.x, h.residual, ctx, residual_scale_);
    } else {
      kernels::add_and_copy(h.x, h.residual, static_cast<float>(residual_scale_), ctx.stream);
    }
    h.is_pending = false;
    return h.x;
  }

  /// Straight into the residual stream where the branch `fuses` and nothing lies between, not even
  /// a sum over ranks.
  layers::BranchOutput output(const std::optional<layers::RmsNorm>& norm, Hidden& h,
                              bool fuses) const {
    if (fuses && !norm && residual_scale_ == 1 && is_whole_) return {h.residual, /*is_added=*/true};
    h.is_pending = true;
    return {h.x};
  }

  std::optional<layers::RmsNorm> before_attention_;
  layers::RopeAttention attention_;
  std::optional<layers::RmsNorm> after_attention_;
  std::optional<layers::RmsNorm> before_mlp_;
  layers::FeedForward mlp_;
  std::optional<layers::RmsNorm> after_mlp_;
  double residual_scale_;
  bool is_whole_;
};

/// Empty when no layer has this rope.
Tensor rope_table(const ModelConfig& c, LayerRope kind, std::int64_t num_positions) {
  bool is_used = false;
  for (std::int64_t i = 0; i < c.num_layers; ++i) is_used |= c.rope_of(i) == kind;
  if (!is_used) return {};
  const RopeConfig& rope = kind == LayerRope::kLocal ? c.local_rope : c.rope;
  return kernels::make_rope_table(rope_inverse_frequencies(rope, c.head_dim, num_positions),
                                  num_positions, static_cast<float>(rope.attention_factor));
}

class DenseDecoder final : public Model {
 public:
  DenseDecoder(const layers::Weights& w, const ModelConfig& c, std::int64_t num_positions)
      : config_(c),
        main_rope_(w.to_device(rope_table(c, LayerRope::kMain, num_positions))),
        local_rope_(w.to_device(rope_table(c, LayerRope::kLocal, num_positions))),
        embed_(w.scope("model.embed_tokens"), c.vocab_size, c.hidden_size),
        // The scale of the logits is one of the head's inputs, and so of the norm before it.
        norm_(w.scope("model.norm"), c.hidden_size, c.rms_norm_eps,
              {.offset = c.norm_offset, .scale = c.logit_scale}),
        head_(c.tie_word_embeddings ? std::make_unique<layers::LmHead>(embed_)
                                    : std::make_unique<layers::LmHead>(
                                          w.scope("lm_head"), c.vocab_size, c.hidden_size)) {
    for (std::int64_t i = 0; i < c.num_layers; ++i)
      layers_.emplace_back(w.scope("model.layers." + std::to_string(i)), c, rope_of(c.rope_of(i)),
                           i);
  }

  const ModelConfig& config() const override { return config_; }

  void forward(ForwardContext& ctx, TensorView logits) const override {
    const ScratchScope scope(ctx.scratch);
    const std::int64_t tokens = ctx.inputs->input_ids.dim(0);
    const Shape hidden{tokens, config_.hidden_size};
    Hidden h{.x = ctx.scratch.alloc(hidden, ctx.activations),
             .residual = ctx.scratch.alloc(hidden, DType::kF32)};
    embed_.forward(ctx.inputs->input_ids, h.residual, ctx);
    if (config_.embedding_scale != 1)
      kernels::scale(h.residual, static_cast<float>(config_.embedding_scale), ctx.stream);
    for (const DecoderLayer& layer : layers_) layer.forward(h, ctx);
    if (ctx.scored != nullptr) score(h, *ctx.scored, ctx);
    head_of(h, ctx.inputs->logit_rows, logits, ctx);
  }

 private:
  TensorView rope_of(LayerRope kind) const {
    if (kind == LayerRope::kNone) return {};
    return kind == LayerRope::kLocal ? local_rope_.view() : main_rope_.view();
  }

  void score(const Hidden& h, const ScoredTokens& scored, ForwardContext& ctx) const {
    const std::int64_t count = scored.rows.dim(0);
    const std::int64_t slice = scored.logits.dim(0);
    for (std::int64_t begin = 0; begin < count; begin += slice) {
      const ScratchScope scope(ctx.scratch);
      const std::int64_t n = std::min(slice, count - begin);
      const TensorView logits = scored.logits.slice(0, n);
      head_of(h, scored.rows.slice(begin, begin + n), logits, ctx);
      scored.take(begin, logits);
    }
  }

  /// Only the tokens whose logits are wanted, `tokens`, go through the last norm and the head.
  void head_of(const Hidden& h, TensorView tokens, TensorView logits, ForwardContext& ctx) const {
    const std::int64_t rows = tokens.dim(0);
    if (rows == 0) return;
    if (h.is_pending) {
      const TensorView last_x = ctx.scratch.alloc({rows, config_.hidden_size}, ctx.activations);
      const TensorView last_residual = ctx.scratch.alloc({rows, config_.hidden_size}, DType::kF32);
      kernels::gather_rows(h.x, tokens, last_x, ctx.stream);
      kernels::gather_rows(h.residual, tokens, last_residual, ctx.stream);
      norm_.add_then_norm(last_x, last_residual, ctx, config_.residual_scale);
      head_->forward(last_x, logits, ctx);
    } else {
      // Only products that fuse leave nothing pending.
      head_->forward({h.residual, norm_, tokens}, logits, ctx);
    }
    if (config_.logit_softcap > 0)
      kernels::softcap(logits, static_cast<float>(config_.logit_softcap), ctx.stream);
  }

  ModelConfig config_;
  Tensor main_rope_;
  Tensor local_rope_;
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
