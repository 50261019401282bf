// Llama, Mistral, Qwen2, Qwen3, Qwen3-MoE: one graph with options.

#pragma once

#include <memory>

#include "models/model.h"

namespace minisgl::models {

/// Takes all weights from `w`; the options (biases, q/k norms, tied head, head size, rope) are in
/// `config`. The rope table covers `num_positions`.
std::unique_ptr<Model> make_dense_decoder(const layers::Weights& w, const ModelConfig& config,
                                          std::int64_t num_positions);

}  // namespace minisgl::models
