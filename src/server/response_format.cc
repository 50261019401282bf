#include "server/response_format.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "llm/sampling_json.h"

namespace minisgl {
namespace {

using Kind = ResponseFormat::Kind;

[[noreturn]] void refuse(const std::string& field, const char* expected, const Json& found) {
  throw RequestError(fmt::format("{} must be {}, not {}", field, expected, describe(found)), field);
}

// A schema: an object, a boolean, or the text of one.
std::string schema_text(const std::string& field, const Json& value) {
  if (value.is_object() || value.is_boolean()) return dump(value);
  if (!value.is_string()) refuse(field, "a JSON schema", value);
  return value.get<std::string>();
}

std::string text_of(const std::string& field, const Json& value) {
  if (!value.is_string()) refuse(field, "a string", value);
  return value.get<std::string>();
}

std::string choices_of(const std::string& field, const Json& value) {
  const char* expected = "an array of strings that is not empty";
  if (!value.is_array() || value.empty()) refuse(field, expected, value);
  for (const Json& choice : value)
    if (!choice.is_string()) refuse(field, expected, choice);
  return dump(value);
}

struct Constraint {
  const char* field;
  Kind kind;
  std::string (*text)(const std::string& field, const Json& value);
};

constexpr Constraint kConstraints[] = {
    {"guided_json", Kind::kJsonSchema, schema_text},
    {"guided_regex", Kind::kRegex, text_of},
    {"guided_grammar", Kind::kGrammar, text_of},
    {"guided_choice", Kind::kChoice, choices_of},
    {"json_schema", Kind::kJsonSchema, schema_text},
    {"regex", Kind::kRegex, text_of},
    {"ebnf", Kind::kGrammar, text_of},
};
constexpr Constraint kStructuredOutputs[] = {
    {"json", Kind::kJsonSchema, schema_text},
    {"regex", Kind::kRegex, text_of},
    {"grammar", Kind::kGrammar, text_of},
    {"choice", Kind::kChoice, choices_of},
};

}  // namespace

ResponseFormat read_response_format(const Fields& fields) {
  ResponseFormat format;
  std::string source;  // the field that it came from
  const auto take = [&](ResponseFormat found, const std::string& field) {
    if (found.kind == Kind::kText) return;
    if (!source.empty())
      throw RequestError(
          fmt::format("{} and {} are two constraints of one answer; give one of them", source,
                      field),
          field);
    format = std::move(found);
    source = field;
  };
  if (const Json* value = fields.object("response_format"))
    take(response_format_from_json(*value), "response_format");
  for (const Constraint& row : kConstraints)
    if (const Json* value = fields.find(row.field))
      take({.kind = row.kind, .text = row.text(row.field, *value)}, row.field);
  if (const Json* outputs = fields.object("structured_outputs")) {
    const Fields members(*outputs);
    if (members.boolean("json_object", false))
      take({.kind = Kind::kJsonObject}, "structured_outputs.json_object");
    for (const Constraint& row : kStructuredOutputs) {
      const std::string field = std::string("structured_outputs.") + row.field;
      if (const Json* value = members.find(row.field))
        take({.kind = row.kind, .text = row.text(field, *value)}, field);
    }
  }
  return format;
}

}  // namespace minisgl
