// OpenAI's chat messages in the one form that chat templates are written for.

#pragma once

#include "server/json.h"

namespace minisgl {

/// Checks `messages` and returns a copy in which
///  - content is always a string: text parts are joined without anything between them; null, an
///    absent content and [] become "" (templates slice and concatenate it);
///  - the arguments of tool calls are objects where their JSON text is one, as in the Python
///    library transformers; other text stays as it is.
/// Roles: system, developer, user, assistant, tool. Other fields (name, reasoning_content,
/// tool_call_id, ...) are kept. Throws RequestError (param "messages") for an empty list, other
/// roles, parts that are not text, and wrong types, naming the message by its index.
Json normalize_messages(const Json& messages);

}  // namespace minisgl
