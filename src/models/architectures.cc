#include "models/architectures.h"

#include <algorithm>
#include <string>

#include "formats/file_kind.h"
#include "minisgl/error.h"

namespace minisgl::models {
namespace {

// transformers' Gemma3TextConfig; published files of models with images leave most of it out.
constexpr std::string_view kGemma3Defaults = R"({
  "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 131072, "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
  "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0})";

// Source: transformers models/ (llama, mistral, mistral3, qwen2, qwen3, qwen3_moe, smollm3, gemma2,
// gemma3, phi3, granite, olmo2); llama.cpp conversion/ (which reorders what) and src/models/.
constexpr Architecture kArchitectures[] = {
    {.huggingface = "LlamaForCausalLM", .gguf = "llama", .gguf_paired_qk_rows = true},
    {.huggingface = "MistralForCausalLM",
     .gguf = "llama",
     .gguf_paired_qk_rows = true,
     .windows = WindowRule::kAllLayers},
    {.huggingface = "Mistral3ForConditionalGeneration",
     .gguf = "llama",
     .gguf_paired_qk_rows = true,
     .text_part = true,
     .windows = WindowRule::kAllLayers},
    {.huggingface = "Qwen2ForCausalLM",
     .gguf = "qwen2",
     .qkv_bias = true,
     .windows = WindowRule::kByLayer,
     .has_window_switch = true},
    {.huggingface = "Qwen3ForCausalLM",
     .gguf = "qwen3",
     .qk_norm = true,
     .windows = WindowRule::kByLayer,
     .has_window_switch = true},
    {.huggingface = "Qwen3MoeForCausalLM",
     .gguf = "qwen3moe",
     .qk_norm = true,
     .moe = true,
     .windows = WindowRule::kAllLayers,
     .has_window_switch = true},
    {.huggingface = "SmolLM3ForCausalLM",
     .gguf = "smollm3",
     .gguf_paired_qk_rows = true,
     .windows = WindowRule::kByLayer,
     .has_window_switch = true,
     .family = Family::kSmolLm3,
     .defaults = R"({"tie_word_embeddings": true})"},
    {.huggingface = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .windows = WindowRule::kPattern,
     .window_pattern = 2,
     .norms = NormPlacement::kBoth,
     .activation = Activation::kGeluTanh,
     .family = Family::kGemma2,
     .defaults = R"({"tie_word_embeddings": true, "query_pre_attn_scalar": 256, "head_dim": 256,
                     "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})"},
    {.huggingface = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .qk_norm = true,
     .windows = WindowRule::kPattern,
     .window_pattern = 6,
     .norms = NormPlacement::kBoth,
     .activation = Activation::kGeluTanh,
     .family = Family::kGemma3,
     .defaults = kGemma3Defaults},
    {.huggingface = "Gemma3ForConditionalGeneration",
     .gguf = "gemma3",
     .qk_norm = true,
     .text_part = true,
     .windows = WindowRule::kPattern,
     .window_pattern = 6,
     .norms = NormPlacement::kBoth,
     .activation = Activation::kGeluTanh,
     .family = Family::kGemma3,
     .defaults = kGemma3Defaults},
    {.huggingface = "Phi3ForCausalLM",
     .gguf = "phi3",
     .windows = WindowRule::kAllLayers,
     .merged_projections = true,
     .family = Family::kPhi3,
     .defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": null})"},
    {.huggingface = "GraniteForCausalLM",
     .gguf = "granite",
     .gguf_paired_qk_rows = true,
     .family = Family::kGranite},
    {.huggingface = "Olmo2ForCausalLM",
     .gguf = "olmo2",
     .projection_qk_norm = true,
     .norms = NormPlacement::kAfter,
     .defaults = R"({"rms_norm_eps": 1e-5})"},
};

const Architecture& find(std::string_view name, std::string_view where,
                         std::string_view Architecture::* column) {
  const auto* row = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                 [&](const Architecture& a) { return a.*column == name; });
  if (row != std::end(kArchitectures)) return *row;
  std::string supported;
  for (const Architecture& a : kArchitectures) {
    if (supported.ends_with(a.*column)) continue;  // two rows, one name
    supported += (supported.empty() ? "" : ", ") + std::string(a.*column);
  }
  throw Error(std::string(where) + ": architecture " + in_quotes(name) +
              " is not supported; supported are " + supported);
}

}  // namespace

const Architecture& find_huggingface(std::string_view name, std::string_view where) {
  return find(name, where, &Architecture::huggingface);
}

const Architecture& find_gguf(std::string_view name, std::string_view where) {
  return find(name, where, &Architecture::gguf);
}

}  // namespace minisgl::models
