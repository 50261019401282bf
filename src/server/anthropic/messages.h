// POST /v1/messages and /v1/messages/count_tokens.
// Source: https://docs.anthropic.com/en/api/messages

#pragma once

#include <string>
#include <string_view>

#include "server/api_request.h"
#include "server/http_message.h"
#include "server/reply.h"

namespace minisgl::anthropic {

/// Reads a body and renders its messages with the model's chat template. A last message of the
/// assistant is continued. `thinking` decides the template's variable enable_thinking. What the API
/// does not have but /v1/chat/completions does (seed, min_p, chat_template_kwargs, ...) is taken
/// too; unknown fields are ignored. Throws RequestError for bad values, StatusError 404 for another
/// model.
Job open_messages(std::string_view body, const ApiContext& context);

/// {"input_tokens": N}. Throws as open_messages() does.
HttpReply count_tokens(std::string_view body, const ApiContext& context);

/// {"type":"error","error":{"type","message"}}.
HttpReply error_reply(int status, const std::string& message);

}  // namespace minisgl::anthropic
