#include <nlohmann/json.hpp>

#include "base/json_shape.h"
#include "input.h"
#include "targets.h"
#include "tokenizer/jinja_template.h"

namespace minisgl::fuzz {
namespace {

using Json = nlohmann::ordered_json;

/// Far below what a server allows, so that an input which only burns its allowance is no time-out
/// under sanitizers: what still takes seconds is work that nobody counted.
constexpr jinja::Limits kLimits{.operations = 100'000, .output_bytes = 1 << 20};

/// As a server reads a request: text that nests or grows too far never becomes a value.
Json read_variables(std::string_view text) {
  if (text.empty()) return Json::object();
  check_json_shape(text, "variables");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

void check_marks(const MarkedText& text) {
  std::size_t end = 0;
  for (const MarkedText::Span& span : text.message_spans) {
    require(span.begin >= end && span.begin < span.end && span.end <= text.text.size(),
            "marks out of order or out of the text");
    end = span.end;
  }
}

}  // namespace

void jinja(std::span<const std::byte> input) {
  std::string_view rest = as_text(input);
  const std::string source(take_part(rest));
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 1;
  // What a template raises is its own text: errors are not looked at here.
  try {
    const Json json = read_variables(rest);
    jinja::Variables variables;
    for (const auto& [name, value] : json.items())
      variables.emplace_back(name, jinja::from_json(value, /*marked=*/true));
    const jinja::Template parsed(source);
    check_marks(parsed.render(variables, now, kLimits));
  } catch (const jinja::TemplateError&) {
  } catch (const RequestError&) {
  }
}

}  // namespace minisgl::fuzz
