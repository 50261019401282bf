#include "models/family_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "formats/file_kind.h"
#include "models/rope_config.h"

namespace minisgl::models {
namespace {

using nlohmann::json;

/// All but each `every`-th layer.
std::vector<bool> pattern(std::int64_t num_layers, std::int64_t every) {
  std::vector<bool> sliding(static_cast<std::size_t>(num_layers));
  for (std::size_t i = 0; i < sliding.size(); ++i)
    sliding[i] = (static_cast<std::int64_t>(i) + 1) % every != 0;
  return sliding;
}

void fill_from_row(const Architecture& row, ModelConfig& c) {
  c.qkv_bias = row.qkv_bias;
  c.qk_norm = row.qk_norm;
  c.projection_qk_norm = row.projection_qk_norm;
  c.norms = row.norms;
  c.activation = row.activation;
}

void fill_local_ropes(const std::vector<bool>& sliding, ModelConfig& c) {
  for (const bool is_local : sliding)
    c.layer_rope.push_back(is_local ? LayerRope::kLocal : LayerRope::kMain);
}

void read_smollm3(const JsonSection& section, ModelConfig& c) {
  if (section.find_bool("use_sliding_window").value_or(false) && !section.find("layer_types"))
    fail(section.where(), "use_sliding_window is true, which needs layer_types");
  const std::int64_t every = section.find_size("no_rope_layer_interval").value_or(4);
  const json* list = section.find("no_rope_layers");  // 1: the layer has rope
  if (list != nullptr &&
      (!list->is_array() || list->size() != static_cast<std::size_t>(c.num_layers)))
    fail(section.where(), "no_rope_layers is " + shown(*list) + ", expected a list of " +
                              std::to_string(c.num_layers) + " layers");
  for (std::int64_t i = 0; i < c.num_layers; ++i) {
    bool has_rope = (i + 1) % every != 0;
    if (list != nullptr) {
      const json& entry = (*list)[static_cast<std::size_t>(i)];
      if (!entry.is_boolean() && entry != 0 && entry != 1)
        fail(section.where(), "no_rope_layers has " + shown(entry) + ", expected 0 or 1");
      has_rope = entry.is_boolean() ? entry.get<bool>() : entry == 1;
    }
    c.layer_rope.push_back(has_rope ? LayerRope::kMain : LayerRope::kNone);
  }
}

void read_gemma(const JsonSection& section, ModelConfig& c) {
  if (section.find_bool("use_bidirectional_attention").value_or(false))
    fail(section.where(), "use_bidirectional_attention is true, which is not supported");
  c.norm_offset = 1.0;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.attention_scale = 1.0 / std::sqrt(section.positive("query_pre_attn_scalar"));
  c.logit_softcap = section.find_positive("final_logit_softcapping").value_or(0.0);
}

/// The main rope is that of layers without a window; the others have one of their own.
void read_gemma3_ropes(const JsonSection& section, const Architecture& row, ModelConfig& c) {
  const bool is_nested = has_rope_of_each_kind(section);
  const json* nested = section.find("rope_parameters");
  const auto rope_of = [&](const char* layers, const char* theta) {
    json flat = {{"rope_theta", section.positive(theta)}};
    if (is_nested && nested->contains(layers)) flat["rope_parameters"] = (*nested)[layers];
    return read_rope(JsonSection(flat, section.where() + ": " + layers), c.head_dim,
                     c.max_position_embeddings);
  };
  if (is_nested) c.rope = rope_of("full_attention", "rope_theta");
  c.local_rope = rope_of("sliding_attention", "rope_local_base_freq");
  fill_local_ropes(sliding_layers(section, row, c.num_layers), c);
}

void read_granite(const JsonSection& section, ModelConfig& c) {
  c.embedding_scale = section.find_positive("embedding_multiplier").value_or(1.0);
  c.residual_scale = section.find_positive("residual_multiplier").value_or(1.0);
  c.attention_scale = section.find_positive("attention_multiplier").value_or(1.0);
  c.logit_scale = 1.0 / section.find_positive("logits_scaling").value_or(1.0);
}

/// LongRoPE's short factors hold up to the context that they were made for, so that is the context
/// unless a longer one is asked for; see ModelConfig::longest_context().
void limit_to_short_factors(ModelConfig& c) {
  if (c.rope.kind == RopeKind::kLongRope)
    c.max_position_embeddings = std::min(c.max_position_embeddings, c.rope.original_max_position);
}

}  // namespace

std::vector<bool> sliding_layers(const JsonSection& section, const Architecture& row,
                                 std::int64_t num_layers) {
  if (row.windows != WindowRule::kByLayer && row.windows != WindowRule::kPattern) return {};
  const json* types = section.find("layer_types");
  if (types == nullptr) {
    if (row.windows != WindowRule::kPattern) return {};
    return pattern(num_layers,
                   section.find_size("sliding_window_pattern").value_or(row.window_pattern));
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(num_layers))
    fail(section.where(), "layer_types is " + shown(*types) + ", expected a list of " +
                              std::to_string(num_layers) + " layers");
  std::vector<bool> sliding;
  for (const json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      fail(section.where(), "layer_types has " + shown(type) +
                                "; supported are full_attention and sliding_attention");
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

void read_family(const JsonSection& section, const Architecture& row, ModelConfig& c) {
  fill_from_row(row, c);
  switch (row.family) {
    case Family::kPlain: break;
    case Family::kSmolLm3: read_smollm3(section, c); break;
    case Family::kGemma2:
      read_gemma(section, c);
      c.attention_softcap = section.find_positive("attn_logit_softcapping").value_or(0.0);
      break;
    case Family::kGemma3:
      read_gemma(section, c);
      if (section.find("attn_logit_softcapping") != nullptr)
        fail(section.where(), "attn_logit_softcapping is not supported for this architecture");
      read_gemma3_ropes(section, row, c);
      break;
    case Family::kPhi3:
      if (c.rope.kind != RopeKind::kDefault && c.rope.kind != RopeKind::kLongRope)
        fail(section.where(), "rope_type of " + c.architecture + " must be default or longrope");
      limit_to_short_factors(c);
      break;
    case Family::kGranite: read_granite(section, c); break;
  }
  if (row.family != Family::kGemma3 && has_rope_of_each_kind(section))
    fail(section.where(),
         "rope_parameters of each kind of layer are not supported for " + c.architecture);
  if (row.family != Family::kPhi3 && c.rope.kind == RopeKind::kLongRope)
    fail(section.where(), "rope_type 'longrope' is not supported for " + c.architecture);
  if (row.family != Family::kPhi3 && c.rope.rotated_dims != 0)
    fail(section.where(),
         "partial_rotary_factor is not supported unless it is 1 for " + c.architecture);
}

namespace {

/// Layers with a window, by the key (a number or a list of booleans) or the row's rule.
std::vector<bool> gguf_sliding_layers(const GgufSection& section, const Architecture& row,
                                      std::int64_t num_layers) {
  if (row.windows != WindowRule::kPattern)
    return std::vector<bool>(static_cast<std::size_t>(num_layers), true);
  return pattern(
      num_layers,
      section.find_size("attention.sliding_window_pattern").value_or(row.window_pattern));
}

void read_gguf_gemma(const GgufSection& section, std::int64_t layers_of_largest, ModelConfig& c) {
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  // No key has query_pre_attn_scalar: the largest model differs, and is known by its layers.
  if (c.num_layers == layers_of_largest)
    c.attention_scale = 1.0 / std::sqrt(static_cast<double>(c.hidden_size / c.num_heads));
  c.logit_softcap = section.find_positive("final_logit_softcapping").value_or(0.0);
}

}  // namespace

void read_gguf_family(const GgufSection& section, const Architecture& row, ModelConfig& c) {
  fill_from_row(row, c);
  const std::vector<bool> sliding = gguf_sliding_layers(section, row, c.num_layers);
  const std::int64_t window = section.file()
                                  .find_int(section.key("attention.sliding_window"))
                                  .value_or(row.family == Family::kGemma2 ? 4096 : 0);
  if (window > 0 && window < c.max_position_embeddings)
    for (const bool has_window : sliding)
      c.layer_windows.push_back(has_window ? static_cast<std::int32_t>(window) : 0);
  switch (row.family) {
    case Family::kPlain: break;
    case Family::kSmolLm3:
      for (const bool has_rope : pattern(c.num_layers, 4))
        c.layer_rope.push_back(has_rope ? LayerRope::kMain : LayerRope::kNone);
      break;
    case Family::kGemma2:
      read_gguf_gemma(section, 46, c);
      if (c.logit_softcap == 0) c.logit_softcap = 30.0;
      c.attention_softcap = section.find_positive("attn_logit_softcapping").value_or(50.0);
      break;
    case Family::kGemma3:
      read_gguf_gemma(section, 62, c);
      c.local_rope.theta = section.find_positive("rope.freq_base_swa").value_or(10000.0);
      fill_local_ropes(sliding, c);
      break;
    case Family::kPhi3: limit_to_short_factors(c); break;
    case Family::kGranite:
      c.embedding_scale = section.find_positive("embedding_scale").value_or(1.0);
      c.residual_scale = section.find_positive("residual_scale").value_or(1.0);
      c.attention_scale = section.find_positive("attention.scale").value_or(0.0);
      c.logit_scale = 1.0 / section.find_positive("logit_scale").value_or(1.0);
      break;
  }
}

}  // namespace minisgl::models
