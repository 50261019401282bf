// All decoders: one graph with options.

#pragma once

#include <memory>

#include "models/model.h"

namespace minisgl::models {

/// Takes all weights from `w`; the options (biases, places of the norms, scales, tied head, head
/// size, ropes, ...) are in `config`. The rope table covers `num_positions`.
std::unique_ptr<Model> make_dense_decoder(const layers::Weights& w, const ModelConfig& config,
                                          std::int64_t num_positions);

}  // namespace minisgl::models
