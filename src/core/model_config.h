// What a model is, as plain data. Read from files by models/config.h.

#pragma once

#include <algorithm>
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
};

struct RopeConfig {
  double theta = 10000.0;
  RopeKind kind = RopeKind::kDefault;
  double factor = 1.0;                     ///< all but kDefault
  double low_freq_factor = 1.0;            ///< kLlama3: bounds of the ramp, in wavelengths per
  double high_freq_factor = 4.0;           ///< original_max_position
  std::int64_t original_max_position = 0;  ///< context length before the scaling, tokens
  double beta_fast = 32.0;                 ///< kYarn: bounds of the ramp, in wavelengths per
  double beta_slow = 1.0;                  ///< original_max_position
  bool truncate = true;                    ///< kYarn: they are rounded outwards to whole dimensions
  double attention_factor = 1.0;           ///< multiplies cos and sin
  /// Each frequency is divided by one of these [head_dim / 2]; empty for none. GGUF files carry
  /// the llama3 ramp so (tensor rope_freqs.weight).
  std::vector<float> divisors = {};

  bool operator==(const RopeConfig&) const = default;
};

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
  RopeConfig rope;
  /// Tokens that a query of each layer sees at most, the last ones, itself included; 0: all. Empty
  /// when no layer has such a window.
  std::vector<std::int32_t> layer_windows;

  /// The longest context that the model is meant for: with kDynamic, `factor` times what it was
  /// trained on.
  std::int64_t longest_context() const {
    if (rope.kind != RopeKind::kDynamic) return max_position_embeddings;
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

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace minisgl
