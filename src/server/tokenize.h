// POST /tokenize and /detokenize, in vLLM's form.
// Source: vLLM's documentation of its OpenAI-compatible server, docs.vllm.ai

#pragma once

#include <string_view>

#include "server/api_request.h"
#include "server/http_message.h"

namespace minisgl {

/// {"prompt", "add_special_tokens"} or {"messages", "tools", ...} -> {"count", "max_model_len",
/// "tokens", "token_strs"}. Throws RequestError that names the field for bad values.
HttpReply tokenize(std::string_view body, const ApiContext& context);

/// {"tokens"} -> {"prompt"}: the text, special tokens included.
HttpReply detokenize(std::string_view body, const ApiContext& context);

}  // namespace minisgl
