// Sampling parameters as JSON.

#pragma once

#include <nlohmann/json.hpp>

#include "minisgl/sampling_params.h"

namespace minisgl {

/// `defaults` with the fields that the object `json` sets (the names of SamplingParams; null leaves
/// the default; "stop" may be a string or a list). Throws RequestError naming a field that is
/// unknown or of the wrong type.
SamplingParams sampling_from_json(const nlohmann::ordered_json& json, SamplingParams defaults);

}  // namespace minisgl
