// JSON schemas as the grammar library can enforce them.

#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace minisgl {

/// Says what is wrong with a regular expression for the inside of a JSON string; "" if nothing.
using PatternCheck = std::function<std::string(const std::string& pattern)>;

/// A schema that xgrammar enforces wholly and that accepts no value which `schema` refuses.
///
/// What is not enforced must not be ignored: throws RequestError (param "response_format", code
/// "unsupported_schema") naming the keyword and its place as a JSON pointer. Annotations (title,
/// description, default, ...) and unknown keywords are dropped. docs/structured_output.md lists
/// what is enforced. Besides:
///  - references become entries of "$defs" in the order of their first use;
///  - lists of types and "oneOf" become "anyOf" (the latter if its options exclude each other);
///  - objects and arrays that say nothing of their contents may hold anything; others hold only
///    what they declare, unless additionalProperties or items say more;
///  - formats of strings become patterns, integers get bounds of 18 digits.
nlohmann::ordered_json enforceable_schema(const nlohmann::ordered_json& schema,
                                          const PatternCheck& check_pattern);

}  // namespace minisgl
