// The architectures that the engine runs: one row each, in architectures.cc.

#pragma once

#include <string_view>

namespace minisgl::models {

struct Architecture {
  std::string_view huggingface;  ///< config.json "architectures"[0]
  std::string_view gguf;         ///< GGUF general.architecture
  bool qkv_bias = false;         ///< q, k and v projections have biases, the output has none
  bool qk_norm = false;          ///< RMS norm over each query and key head
  /// GGUF files store the rows of q and k heads as pairs (d, d + head_dim / 2): llama.cpp's
  /// converter reorders them for this architecture alone.
  bool gguf_paired_qk_rows = false;
  /// config.json's sliding_window counts when use_sliding_window is absent.
  bool sliding_window_by_default = false;
};

/// Rows by name; throws Error naming the architecture and the supported ones when there is none.
/// `where` begins the message. Of several rows with one GGUF name (Mistral's files say "llama") the
/// first counts.
const Architecture& find_huggingface(std::string_view name, std::string_view where);
const Architecture& find_gguf(std::string_view name, std::string_view where);

}  // namespace minisgl::models
