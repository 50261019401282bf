// POST /generate, which two engines have in two forms.

#pragma once

#include <string_view>

#include "server/json.h"
#include "server/reply.h"

namespace minisgl {

/// A body with text, input_ids or sampling_params has SGLang's form, any other mini-sglang's.
/// Throws RequestError that names the field for bad values.
Job open_generate(std::string_view body, const ApiContext& context);

/// {"prompt", "max_tokens", "ignore_eos"}; it takes what /v1/completions takes too. The defaults
/// are upstream's: greedy and streamed. A stream has events {"text":...}: upstream writes bare text
/// there, which line ends in it would break.
/// Source: mini-sglang server/api_server.py
Job open_mini_sglang_generate(const Json& body, const ApiContext& context);

/// {"text" or "input_ids", "sampling_params": {"max_new_tokens", ...}, "stream", "return_logprob",
/// "top_logprobs_num", "logprob_start_len"}: one object, or an array of them for several answers.
/// An event of a stream has the whole text so far.
/// Source: SGLang's documentation of its native API, docs.sglang.ai
Job open_sglang_generate(const Json& body, const ApiContext& context);

/// GET /health_generate: one token is generated; the reply has no body.
Job open_health_generate(std::string_view body, const ApiContext& context);

}  // namespace minisgl
