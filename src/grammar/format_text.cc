#include "grammar/format_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_shape.h"
#include "base/utf8.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& message) {
  throw RequestError("response_format: " + message, "response_format");
}

Json parse(const std::string& text) {
  check_json_shape(text, "response_format");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) refuse("the text is not JSON");
  return json;
}

/// A string of xgrammar's EBNF.
std::string literal(const std::string& text) {
  std::string result = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (c.code_point == '"' || c.code_point == '\\') {
      result += '\\';
      result += text[i];
    } else if (c.code_point >= ' ' && c.code_point < 0x7F) {
      result += text[i];
    } else {
      result += fmt::format("\\U{:08x}", static_cast<unsigned>(c.code_point));
    }
    i += c.length;
  }
  return result + "\"";
}

/// Makes every schema below `format` enforceable.
void fix_schemas(Json& format, const PatternCheck& check_pattern) {
  if (format.is_array()) {
    for (Json& element : format) fix_schemas(element, check_pattern);
  } else if (format.is_object() && format.value("type", Json()) == "json_schema") {
    if (!format.contains("json_schema")) refuse("a \"json_schema\" format has no \"json_schema\"");
    format["json_schema"] = enforceable_schema(format["json_schema"], check_pattern);
    if (!format.contains("max_whitespace_cnt")) format["max_whitespace_cnt"] = 1;
  } else if (format.is_object()) {
    for (auto& [key, value] : format.items())
      if (value.is_structured()) fix_schemas(value, check_pattern);
  }
}

/// {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, which came first.
Json triggered_tags(const Json& old) {
  Json tags = Json::array();
  if (!old["structures"].is_array() || !old.contains("triggers"))
    refuse("a structural tag with \"structures\" needs a list of them, and \"triggers\"");
  for (const Json& tag : old["structures"]) {
    if (!tag.is_object() || !tag.contains("begin") || !tag.contains("schema") ||
        !tag.contains("end"))
      refuse("an element of \"structures\" needs \"begin\", \"schema\" and \"end\"");
    tags.push_back({{"type", "tag"},
                    {"begin", tag["begin"]},
                    {"content", {{"type", "json_schema"}, {"json_schema", tag["schema"]}}},
                    {"end", tag["end"]}});
  }
  return {{"type", "triggered_tags"}, {"triggers", old["triggers"]}, {"tags", std::move(tags)}};
}

}  // namespace

std::string schema_text(const ResponseFormat& format, const PatternCheck& check_pattern) {
  const bool any_object = format.kind == ResponseFormat::Kind::kJsonObject;
  const Json schema = any_object ? Json{{"type", "object"}} : parse(format.text);
  return enforceable_schema(schema, check_pattern).dump();
}

std::string choice_grammar(const ResponseFormat& format) {
  const Json choices = parse(format.text);
  if (!choices.is_array() || choices.empty()) refuse("\"choice\" needs a list of strings");
  std::string grammar = "root ::= ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!choices[i].is_string() || choices[i].get<std::string>().empty())
      refuse(fmt::format("choice {} is {}; it must be a string that is not empty", i,
                         choices[i].dump()));
    grammar += (i == 0 ? "" : " | ") + literal(choices[i].get<std::string>());
  }
  return grammar + "\n";
}

std::string structural_tag_text(const ResponseFormat& format, const PatternCheck& check_pattern) {
  const Json tag = parse(format.text);
  if (!tag.is_object() || tag.contains("format") == tag.contains("structures"))
    refuse("a structural tag needs either \"format\" or \"structures\" and \"triggers\"");
  Json inner = tag.contains("format") ? tag["format"] : triggered_tags(tag);
  fix_schemas(inner, check_pattern);
  return Json{{"type", "structural_tag"}, {"format", std::move(inner)}}.dump();
}

}  // namespace minisgl
