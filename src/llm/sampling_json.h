// Sampling parameters as JSON.

#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "minisgl/sampling_params.h"

namespace minisgl {

/// `defaults` with the fields that the object `json` sets (the names of SamplingParams; null leaves
/// the default; "stop" may be a string or a list). Throws RequestError naming a field that is
/// unknown or of the wrong type.
SamplingParams sampling_from_json(const nlohmann::ordered_json& json, SamplingParams defaults);

/// {"<token id>": bias, ...}, as OpenAI has it. Throws RequestError naming what is ill-formed.
std::vector<LogitBias> logit_bias_from_json(const nlohmann::ordered_json& json);

/// {"type": "text" | "json_object"}, {"type": "json_schema", "json_schema": {"schema": ...}}
/// (OpenAI),
/// {"type": "regex", "pattern": ...}, {"type": "grammar", "grammar": ...}, {"type": "choice",
/// "choices": [...]}, {"type": "structural_tag", ...}: the last keeps the whole object as its text.
/// Throws RequestError naming what is missing or unknown.
ResponseFormat response_format_from_json(const nlohmann::ordered_json& json);

}  // namespace minisgl
