// POST /generate as mini-sglang has it.
// Source: mini-sglang server/api_server.py

#pragma once

#include <string_view>

#include "server/reply.h"

namespace minisgl {

/// Reads a body {"prompt", "max_tokens", "ignore_eos"}; it takes what /v1/completions takes too. The
/// defaults are upstream's: greedy and streamed. A stream has events {"text":...}: upstream writes
/// bare text there, which line ends in it would break. Throws as openai::open_completion() does.
Job open_mini_sglang_generate(std::string_view body, const ApiContext& context);

}  // namespace minisgl
