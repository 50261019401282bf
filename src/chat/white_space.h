// White space of JSON, which is also what models write around tags.

#pragma once

#include <string_view>

namespace minisgl {

constexpr bool is_white_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

constexpr std::string_view without_leading_space(std::string_view text) {
  while (!text.empty() && is_white_space(text.front())) text.remove_prefix(1);
  return text;
}

}  // namespace minisgl
