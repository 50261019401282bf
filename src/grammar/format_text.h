// What xgrammar is given for each kind of response format.

#pragma once

#include <string>

#include "grammar/schema.h"
#include "minisgl/sampling_params.h"

namespace minisgl {

/// The JSON schema of kJsonObject or kJsonSchema, enforceable. Throws RequestError for text that is
/// not JSON, nests too deeply or is a schema that enforceable_schema() refuses.
std::string schema_text(const ResponseFormat& format, const PatternCheck& check_pattern);

/// kChoice as a grammar: one of the strings, and nothing else.
std::string choice_grammar(const ResponseFormat& format);

/// kStructuralTag as xgrammar has it. Schemas in it are made enforceable, whitespace between the
/// parts of their JSON is at most one character, and the older form {"structures", "triggers"}
/// becomes "triggered_tags".
std::string structural_tag_text(const ResponseFormat& format, const PatternCheck& check_pattern);

}  // namespace minisgl
