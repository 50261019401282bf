// generation_config.json: how the authors of a model advise to sample from it.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "minisgl/sampling_params.h"

namespace minisgl::models {

/// temperature, top_k, top_p and min_p of the file, as far as they are there and not null. As in
/// vLLM, do_sample is not read: a file that has a temperature means it. A repetition_penalty other
/// than 1 is not supported: it is left out with a warning in the log.
///
/// Errors   Error naming file, key, value and range for what no request could ask for either.
/// Source   vllm config/model.py get_diff_sampling_param().
SamplingDefaults read_sampling_defaults(const nlohmann::json& root, const std::string& where);

}  // namespace minisgl::models
