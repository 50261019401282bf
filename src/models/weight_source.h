// Checkpoints as weight sources: safetensors folders and GGUF files under the same names.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/model_config.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "layers/weight_source.h"
#include "layers/weights.h"

namespace minisgl::models {

/// The canonical name of a GGUF tensor: "blk.3.attn_q.weight" is
/// "model.layers.3.self_attn.q_proj.weight". What ffn_norm is depends on where the architecture has
/// its norms. A name that is not known is returned as it is.
/// Source   llama.cpp gguf-py/gguf/tensor_mapping.py.
std::string canonical_name(std::string_view gguf_name,
                           NormPlacement norms = NormPlacement::kBefore);

/// `faults` are those of the folder's constructor.
std::unique_ptr<WeightSource> safetensors_weights(SafetensorsFolder folder, FileFaults faults = {});
std::unique_ptr<WeightSource> gguf_weights(GgufFile file);

/// The weights of a GGUF file or of a folder of safetensors files. Throws Error as those do, but
/// for what is wrong with shards, which is in file_faults().
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path);

/// Throws one Error that lists all that keeps `source` from being the weights of a model which
/// found `faults` and takes the tensors `wanted`: file faults, tensors that are missing,
/// misshapen, of an unknown type, or that the model does not have and so would compute something
/// else than what was trained. Not counted: precomputed rotary tables, and the LM head that tied
/// checkpoints carry along.
void check_weights(const WeightSource& source, const layers::WeightFaults& faults,
                   const layers::WantedWeights& wanted);

}  // namespace minisgl::models
