// Cuts the source of a template into tokens, with jinja2's rules for blanks around tags.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace minisgl::jinja {

enum class TokenType {
  kData,           ///< text between tags
  kVariableBegin,  ///< {{
  kVariableEnd,    ///< }}
  kBlockBegin,     ///< {%
  kBlockEnd,       ///< %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;  ///< data, name, operator, or the string without quotes and escapes
  int line = 0;
  Value number;  ///< of kInteger and kFloat

  bool is_operator(std::string_view symbol) const {
    return type == TokenType::kOperator && text == symbol;
  }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// As jinja2 names a token in its messages: a name or a symbol itself, else its kind.
std::string describe(const Token& token);

/// All tokens, the last one kEnd. Environment: trim_blocks, lstrip_blocks, the final newline
/// dropped, every line break one "\n". Throws TemplateError with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace minisgl::jinja
