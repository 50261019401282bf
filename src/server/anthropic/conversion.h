// Anthropic's messages and tools in the form of OpenAI's API.

#pragma once

#include "server/json.h"

namespace minisgl::anthropic {

/// OpenAI's messages for `system` (a string, text blocks or null) and `messages`. Results of tools
/// become messages of the role "tool", thinking becomes reasoning_content. Throws RequestError that
/// names the place for what is not of the API's shape, and for images and documents.
Json openai_messages(const Json* system, const Json& messages);

/// OpenAI's tools for [{"name","description","input_schema"}]. Throws RequestError that names the
/// place, also for tools that Anthropic's servers run themselves.
Json openai_tools(const Json& tools);

}  // namespace minisgl::anthropic
