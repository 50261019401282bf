// POST /v1/completions.
// Source: https://platform.openai.com/docs/api-reference/completions

#pragma once

#include <string_view>

#include "server/reply.h"

namespace minisgl::openai {

/// Reads a body. Absent and null fields take what the model advises, else OpenAI's defaults
/// (temperature 1, max_tokens 16); unknown fields are ignored. Throws RequestError that names the
/// field for bad values and for what is not supported, StatusError 404 for another model.
Job open_completion(std::string_view body, const ApiContext& context);

}  // namespace minisgl::openai
