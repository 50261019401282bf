// What an answer has to look like, as OpenAI's API and other engines ask for it.

#pragma once

#include "minisgl/sampling_params.h"
#include "server/json.h"

namespace minisgl {

/// Reads response_format (see response_format_from_json()), or one of the names that other engines
/// have for constraints: guided_json, guided_regex, guided_grammar, guided_choice,
/// structured_outputs {json, regex, grammar, choice, json_object}, json_schema, regex, ebnf. Throws
/// RequestError naming the field for a bad value, and for two constraints at once.
ResponseFormat read_response_format(const Fields& fields);

}  // namespace minisgl
