// Checkpoints as weight sources: safetensors folders and GGUF files under the same names.

#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "core/model_config.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "layers/weight_source.h"

namespace minisgl::models {

/// The canonical name of a GGUF tensor: "blk.3.attn_q.weight" is
/// "model.layers.3.self_attn.q_proj.weight". What ffn_norm is depends on where the architecture has
/// its norms. A name that is not known is returned as it is.
/// Source   llama.cpp gguf-py/gguf/tensor_mapping.py.
std::string canonical_name(std::string_view gguf_name,
                           NormPlacement norms = NormPlacement::kBefore);

/// find() throws Error naming a tensor whose type is not supported.
std::unique_ptr<WeightSource> safetensors_weights(SafetensorsFolder folder);
std::unique_ptr<WeightSource> gguf_weights(GgufFile file);

/// The weights of a GGUF file or of a folder of safetensors files. Throws Error as those do.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path);

/// Throws Error listing the tensors of `source` that are not in `used`: the model would compute
/// something else than what was trained. Not counted: precomputed rotary tables, and the LM head
/// that tied checkpoints carry along.
void check_all_used(const WeightSource& source, const std::set<std::string, std::less<>>& used);

}  // namespace minisgl::models
