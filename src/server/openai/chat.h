// POST /v1/chat/completions.
// Source: https://platform.openai.com/docs/api-reference/chat

#pragma once

#include <string_view>

#include "server/reply.h"

namespace minisgl::openai {

/// Reads a body and renders its messages with the model's chat template; a raw `prompt` in their
/// place is taken as it is. Absent and null fields take what the model advises, else OpenAI's
/// defaults (temperature 1, the rest of the context); unknown fields are ignored. Throws
/// RequestError that names the field for bad values and for what is not supported, StatusError 404
/// for another model.
Job open_chat(std::string_view body, const ApiContext& context);

}  // namespace minisgl::openai
