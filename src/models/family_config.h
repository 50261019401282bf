// What single families of models add to config.json and to GGUF metadata.

#pragma once

#include <vector>

#include "core/model_config.h"
#include "models/architectures.h"
#include "models/config_section.h"

namespace minisgl::models {

/// Which layers have the sliding window, by layer_types or by the rule of the row; empty when the
/// row has no windows that differ by layer and no list says so.
/// Errors   Error naming the key: a list of another length, an unknown kind of layer.
std::vector<bool> sliding_layers(const JsonSection& section, const Architecture& row,
                                 std::int64_t num_layers);

/// Fills in what the row itself says and the keys of its family: multipliers, soft caps, ropes of
/// the layers. Sizes, `rope` and layer_windows are there already.
/// Errors   Error naming the key: a value that is impossible or not supported.
/// Source   transformers configuration_*.py of each family.
void read_family(const JsonSection& section, const Architecture& row, ModelConfig& config);

/// The same from a GGUF file, with layer_windows.
/// Source   llama.cpp src/models/, where it says what no key says: layers without rope, the pattern
///          of windows, the scale of attention of the largest Gemma models.
void read_gguf_family(const GgufSection& section, const Architecture& row, ModelConfig& config);

}  // namespace minisgl::models
