#include "models/architectures.h"

#include <algorithm>
#include <string>

#include "formats/file_kind.h"
#include "minisgl/error.h"

namespace minisgl::models {
namespace {

// Source: transformers models/{llama,mistral,mistral3,qwen2,qwen3,qwen3_moe}/; llama.cpp convert_hf_to_gguf.py.
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
