// The architectures that the engine runs: one row each, in architectures.cc.

#pragma once

#include <cstdint>
#include <string_view>

#include "core/model_config.h"

namespace minisgl::models {

/// Which layers have config.json's sliding_window.
enum class WindowRule : std::uint8_t {
  kNone,       ///< none, whatever it says
  kAllLayers,  ///< all
  kByLayer,    ///< those that layer_types calls sliding_attention; without that list, all from
               ///< max_window_layers on
  kPattern,    ///< the same; without that list, all but each window_pattern-th
};

/// Which keys of its own an architecture has; models/family_config.h reads them.
enum class Family : std::uint8_t { kPlain, kSmolLm3, kGemma2, kGemma3, kPhi3, kGranite };

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
  bool has_window_switch = false;   ///< windows need use_sliding_window
  std::int64_t window_pattern = 0;  ///< WindowRule::kPattern, unless sliding_window_pattern says
  bool projection_qk_norm = false;  ///< RMS norm over all query heads, and over all key heads
  NormPlacement norms = NormPlacement::kBefore;
  Activation activation = Activation::kSilu;
  /// Weights of q, k and v are one tensor, and so are those of gate and up.
  bool merged_projections = false;
  Family family = Family::kPlain;
  /// What transformers takes for keys that config.json leaves out, where that is not what this
  /// project takes for all architectures. JSON.
  std::string_view defaults = "{}";
};

/// Rows by name; throws Error naming the architecture and the supported ones when there is none.
/// `where` begins the message. Of several rows with one GGUF name (Mistral's files say "llama") the
/// first counts.
const Architecture& find_huggingface(std::string_view name, std::string_view where);
const Architecture& find_gguf(std::string_view name, std::string_view where);

}  // namespace minisgl::models
