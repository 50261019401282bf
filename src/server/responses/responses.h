// POST /v1/responses, without memory: each request brings the whole conversation.
// Source: https://platform.openai.com/docs/api-reference/responses

#pragma once

#include <string_view>

#include "server/json.h"
#include "server/reply.h"

namespace minisgl::responses {

/// Reads a body and renders its input with the model's chat template. Unknown fields are ignored.
/// Throws RequestError that names the field for bad values and for what needs a memory
/// (previous_response_id, conversation, background, item references), StatusError 404 for another
/// model.
Job open_response(std::string_view body, const ApiContext& context);

/// The messages of chat completions for `instructions` (may be null) and `input`, a string or an
/// array of items. Throws RequestError that names the place.
Json chat_messages(const Json* instructions, const Json& input);

}  // namespace minisgl::responses
