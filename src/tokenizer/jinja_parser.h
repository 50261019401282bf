// Source of a template to statements: the grammar of jinja2 3.1.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_lexer.h"
#include "tokenizer/jinja_statements.h"

namespace minisgl::jinja {

/// Reads tokens; what the parsers of expressions and statements share.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  /// The current token; moves on.
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at_operator(std::string_view symbol) const { return current().is_operator(symbol); }
  bool at_name(std::string_view name) const { return current().is_name(name); }
  bool at(TokenType type) const { return current().type == type; }
  /// Moves over it if it is there.
  bool skip_operator(std::string_view symbol);
  bool skip_name(std::string_view name);

  // Each throws TemplateError naming what was expected and what is there.
  const Token& expect(TokenType type);
  const Token& expect_operator(std::string_view symbol);
  const Token& expect_name(std::string_view name);

  [[noreturn]] void fail(const std::string& message) const { fail(message, current().line); }
  [[noreturn]] static void fail(const std::string& message, int line) {
    throw TemplateError(message, line);
  }

 private:
  [[noreturn]] void fail_expected(const std::string& expected) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

/// How many expressions or blocks may be inside each other in the source.
inline constexpr int kMaxSourceNesting = 200;
/// How many parts one expression may have: a bound on the depth of a chain such as a + b + c.
inline constexpr int kMaxExpressionParts = 10'000;

class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, NameTable& names) : tokens_(tokens), names_(names) {}

  /// `conditional`: "a if b else c" is allowed.
  ExprPtr parse(bool conditional = true);
  /// One expression, or several with commas: a tuple. `end` is a name that ends it too.
  ExprPtr parse_tuple(bool conditional = true, std::string_view end = {});
  /// A name, a tuple of names or, if `with_namespace`, name.attribute.
  Target parse_target(bool with_namespace, std::string_view end = {});
  Target parse_name_target();
  /// | name(arguments) | name ...; with `start_inline` the first bar is left out.
  std::vector<FilterCall> parse_filters(bool start_inline);
  /// A call, as a call block needs it.
  std::unique_ptr<const Call> parse_call_expression();

  /// Starts counting the parts of a new expression.
  void start_tag() { parts_ = 0; }
  /// Filters and tests that do not exist are errors at once, except in code that may never run.
  void enter_optional() { ++optional_; }
  void leave_optional() { --optional_; }

  /// Which of the special names of macros have been used since the flags were last cleared.
  struct Specials {
    bool caller = false, varargs = false, kwargs = false;
  };
  Specials& specials() { return specials_; }

 private:
  using Parse = ExprPtr (ExpressionParser::*)();

  template <class T, class... Args>
  ExprPtr make(int line, Args&&... args);
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_signed();
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_strings();
  ExprPtr parse_parenthesized();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr e);
  ExprPtr parse_filter_expr(ExprPtr e);
  ExprPtr parse_dot(ExprPtr e);
  ExprPtr parse_brackets(ExprPtr e);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_test(ExprPtr e);
  ExprPtr parse_call(ExprPtr e);
  FilterCall parse_filter();
  std::string parse_dotted_name();
  CallArguments parse_arguments();
  Target parse_one_target(bool with_namespace);
  bool at_tuple_end(std::string_view end) const;
  void count_part(int line);

  TokenReader& tokens_;
  NameTable& names_;
  int depth_ = 0;
  int parts_ = 0;
  int optional_ = 0;
  Specials specials_;
};

/// The statements of a template; names go to `names`. Throws TemplateError with a line.
Body parse_template(std::string_view source, NameTable& names);

}  // namespace minisgl::jinja
