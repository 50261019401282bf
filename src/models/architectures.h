// The architectures that the engine runs: one row each, in architectures.cc.

#pragma once

#include <cstdint>
#include <string_view>

namespace minisgl::models {

/// Which layers have config.json's sliding_window.
enum class WindowRule : std::uint8_t {
  kNone,       ///< none, whatever it says
  kAllLayers,  ///< all
  kByLayer,    ///< those that layer_types calls sliding_attention; without that list, all from
               ///< max_window_layers on
};

struct Architecture {
  std::string_view huggingface;  ///< config.json "architectures"[0]
  std::string_view gguf;         ///< GGUF general.architecture
  bool qkv_bias = false;         ///< q, k and v projections have biases, the output has none
  bool qk_norm = false;          ///< RMS norm over each query and key head
  /// GGUF files store the rows of q and k heads as pairs (d, d + head_dim / 2): llama.cpp's
  /// converter reorders them for this architecture alone.
  bool gguf_paired_qk_rows = false;
  /// A model that also sees: its config.json keeps the text part in text_config, and whether the
  /// head is tied follows from the weights.
  bool text_part = false;
  bool moe = false;  ///< layers may be mixtures of experts
  WindowRule windows = WindowRule::kNone;
  bool has_window_switch = false;  ///< windows need use_sliding_window
};

/// Rows by name; throws Error naming the architecture and the supported ones when there is none.
/// `where` begins the message. Of several rows with one GGUF name (Mistral's files say "llama") the
/// first counts.
const Architecture& find_huggingface(std::string_view name, std::string_view where);
const Architecture& find_gguf(std::string_view name, std::string_view where);

}  // namespace minisgl::models
