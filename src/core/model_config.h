// What a model is, as plain data. Read from files by models/config.h.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "minisgl/sampling_params.h"
#include "tensor/dtype.h"

namespace minisgl {

/// How the rotary frequencies of a model differ from theta^(-2i / head_dim).
enum class RopeKind : std::uint8_t {
  kDefault,  ///< not at all
  kLinear,   ///< all divided by `factor`
  kLlama3,   ///< low frequencies divided by `factor`, high ones kept, a ramp between
  kYarn,     ///< the same with another ramp; also rescales cos and sin
  kDynamic,  ///< theta grows with the longest sequence, once that is beyond original_max_position
  /// All divided by `divisors` or, when sequences may be longer than original_max_position, by
  /// long_divisors; also rescales cos and sin
  kLongRope,
};

struct RopeConfig {
  double theta = 10000.0;
  RopeKind kind = RopeKind::kDefault;
  double factor = 1.0;  ///< all but kDefault; kLongRope: longest context / original_max_position
  double low_freq_factor = 1.0;            ///< kLlama3: bounds of the ramp, in wavelengths per
  double high_freq_factor = 4.0;           ///< original_max_position
  std::int64_t original_max_position = 0;  ///< context length before the scaling, tokens
  double beta_fast = 32.0;                 ///< kYarn: bounds of the ramp, in wavelengths per
  double beta_slow = 1.0;                  ///< original_max_position
  bool truncate = true;                    ///< kYarn: they are rounded outwards to whole dimensions
  double attention_factor = 1.0;           ///< multiplies cos and sin
  /// The first dimensions of each head are turned, the others kept; 0: all are turned.
  std::int64_t rotated_dims = 0;
  /// Each frequency is divided by one of these [rotated dimensions / 2]; empty for none. GGUF files
  /// carry the llama3 ramp so (tensor rope_freqs.weight).
  std::vector<float> divisors = {};
  std::vector<float> long_divisors = {};  ///< kLongRope

  bool operator==(const RopeConfig&) const = default;
};

/// Which of its ropes a layer has.
enum class LayerRope : std::uint8_t {
  kMain,   ///< ModelConfig::rope
  kLocal,  ///< ModelConfig::local_rope
  kNone,   ///< queries and keys are not turned
};

/// Where a decoder layer has its RMS norms.
enum class NormPlacement : std::uint8_t {
  kBefore,  ///< on what goes into attention and MLP
  kAfter,   ///< on what comes out of them
  kBoth,
};

/// Of the gated MLP.
enum class Activation : std::uint8_t { kSilu, kGeluTanh };

/// The MLP of sparse layers: each token goes to some of many small gated MLPs.
struct MoeConfig {
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;  ///< of each expert
  /// The weights of a token's experts are divided by their sum.
  bool norm_topk_prob = false;

  bool operator==(const MoeConfig&) const = default;
};

/// Sizes are of the whole model, not of one rank's part. A config that a reader returned is
/// consistent: sizes are positive, num_heads is a multiple of num_kv_heads, head_dim is even.
struct ModelConfig {
  std::string architecture;  ///< Hugging Face's name, "LlamaForCausalLM"; a row of the table in
                             ///< models/architectures.h
  std::string name;          ///< general.name of a GGUF file, else the folder's name; for people

  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  ///< of the MLP
  std::int64_t num_heads = 0;          ///< query heads
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;    ///< its own number: not always hidden_size / num_heads
  std::int64_t vocab_size = 0;  ///< rows of the embedding; a tokenizer may know fewer tokens
  std::int64_t max_position_embeddings = 0;  ///< context length, tokens

  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;  ///< the LM head is the embedding
  bool qkv_bias = false;             ///< q, k and v projections add a bias
  bool qk_norm = false;              ///< RMS norm over each query and key head before rope
  bool projection_qk_norm = false;   ///< the same over all query heads, and over all key heads
  Activation activation = Activation::kSilu;
  NormPlacement norms = NormPlacement::kBefore;
  double norm_offset = 0.0;        ///< added to every norm's weight when it is loaded
  double embedding_scale = 1.0;    ///< multiplies the embedding
  double residual_scale = 1.0;     ///< multiplies what attention and MLP add
  double attention_scale = 0.0;    ///< multiplies query * key; 0: head_dim^-0.5
  double attention_softcap = 0.0;  ///< scores become cap * tanh(score / cap); 0: they stay
  double logit_scale = 1.0;        ///< multiplies the logits
  double logit_softcap = 0.0;      ///< logits become cap * tanh(logit / cap); 0: they stay

  RopeConfig rope;
  RopeConfig local_rope;              ///< of the layers that have kLocal
  std::vector<LayerRope> layer_rope;  ///< of each layer; empty: kMain
  LayerRope rope_of(std::int64_t layer) const {
    return layer_rope.empty() ? LayerRope::kMain : layer_rope[static_cast<std::size_t>(layer)];
  }
  double score_scale() const {
    return attention_scale > 0 ? attention_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  }
  /// Tokens that a query of each layer sees at most, the last ones, itself included; 0: all. Empty
  /// when no layer has such a window.
  std::vector<std::int32_t> layer_windows;

  /// The longest context that the model is meant for: with kDynamic and kLongRope, `factor` times
  /// what it was trained on.
  std::int64_t longest_context() const {
    if (rope.kind != RopeKind::kDynamic && rope.kind != RopeKind::kLongRope)
      return max_position_embeddings;
    constexpr double kMost = 1 << 30;
    return static_cast<std::int64_t>(
        std::min(rope.factor * static_cast<double>(max_position_embeddings), kMost));
  }

  MoeConfig moe;
  /// Whether each layer's MLP is a mixture of experts; empty when none is.
  std::vector<bool> sparse_layers;
  bool is_sparse(std::int64_t layer) const {
    return !sparse_layers.empty() && sparse_layers[static_cast<std::size_t>(layer)];
  }

  /// Every token that ends an answer, ascending, all below vocab_size: what config.json and
  /// generation_config.json name together, or a GGUF's eos, eot and eom tokens.
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  SamplingDefaults sampling;  ///< of generation_config.json
  /// Storage type of the weights: as config.json names it (f32 when it does not); the type of most
  /// elements of a GGUF.
  DType dtype = DType::kF32;
  DType gpu_dtype = DType::kBF16;  ///< of matrices and activations on a GPU: bf16 or f16

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace minisgl
