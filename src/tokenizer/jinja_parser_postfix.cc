// What follows an operand: attributes, items, calls, filters, tests; and targets of assignments
// (declared in jinja_parser.h).

#include "tokenizer/jinja_parser.h"

namespace minisgl::jinja {

ExprPtr ExpressionParser::parse_postfix(ExprPtr e) {
  while (true) {
    if (tokens_.at_operator(".")) {
      e = parse_dot(std::move(e));
    } else if (tokens_.at_operator("[")) {
      e = parse_brackets(std::move(e));
    } else if (tokens_.at_operator("(")) {
      e = parse_call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::parse_filter_expr(ExprPtr e) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      FilterCall filter = parse_filter();
      const int line = filter.line;
      count_part(line);
      e = std::make_unique<const Filter>(line, std::move(e), std::move(filter));
    } else if (tokens_.at_name("is")) {
      e = parse_test(std::move(e));
    } else if (tokens_.at_operator("(")) {
      e = parse_call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::parse_dot(ExprPtr e) {
  const int line = tokens_.next().line;
  count_part(line);
  const Token& token = tokens_.next();
  if (token.type == TokenType::kName)
    return std::make_unique<const Attribute>(line, std::move(e), token.text);
  if (token.type != TokenType::kInteger) TokenReader::fail("expected name or number", token.line);
  return std::make_unique<const Item>(line, std::move(e),
                                      std::make_unique<const Constant>(token.line, token.number));
}

ExprPtr ExpressionParser::parse_brackets(ExprPtr e) {
  tokens_.next();
  e = parse_subscript(std::move(e));
  tokens_.expect_operator("]");
  return e;
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = tokens_.current().line;
  count_part(line);
  const auto at_end = [&] {
    return tokens_.at_operator("]") || tokens_.at_operator(",") || tokens_.at_operator(":");
  };
  ExprPtr start;
  if (!tokens_.at_operator(":")) {
    start = parse();
    if (tokens_.at_operator(",")) {  // a[1, 2] has a tuple for a key
      std::vector<ExprPtr> items;
      items.push_back(std::move(start));
      while (tokens_.skip_operator(",")) items.push_back(parse());
      start = std::make_unique<const Sequence>(line, std::move(items), /*tuple=*/true);
    }
    if (!tokens_.at_operator(":"))
      return std::make_unique<const Item>(line, std::move(object), std::move(start));
  }
  tokens_.expect_operator(":");
  ExprPtr stop;
  ExprPtr step;
  if (!at_end()) stop = parse();
  if (tokens_.skip_operator(":") && !at_end()) step = parse();
  return std::make_unique<const Slice>(line, std::move(object), std::move(start), std::move(stop),
                                       std::move(step));
}

ExprPtr ExpressionParser::parse_call(ExprPtr e) {
  const int line = tokens_.current().line;
  count_part(line);
  CallArguments arguments = parse_arguments();
  return std::make_unique<const Call>(line, std::move(e), std::move(arguments));
}

std::unique_ptr<const Call> ExpressionParser::parse_call_expression() {
  const int line = tokens_.current().line;
  ExprPtr e = parse();
  if (dynamic_cast<const Call*>(e.get()) == nullptr) TokenReader::fail("expected call", line);
  return std::unique_ptr<const Call>(static_cast<const Call*>(e.release()));
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = tokens_.expect(TokenType::kName).text;
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect(TokenType::kName).text;
  return name;
}

FilterCall ExpressionParser::parse_filter() {
  FilterCall filter;
  filter.line = tokens_.current().line;
  filter.name = parse_dotted_name();
  filter.body = find_filter(filter.name);
  if (filter.body == nullptr && optional_ == 0)
    TokenReader::fail("No filter named '" + filter.name + "'.", filter.line);
  if (tokens_.at_operator("(")) filter.arguments = parse_arguments();
  return filter;
}

std::vector<FilterCall> ExpressionParser::parse_filters(bool start_inline) {
  std::vector<FilterCall> filters;
  if (start_inline) filters.push_back(parse_filter());
  while (tokens_.skip_operator("|")) filters.push_back(parse_filter());
  return filters;
}

ExprPtr ExpressionParser::parse_test(ExprPtr e) {
  const int line = tokens_.next().line;
  count_part(line);
  const bool negated = tokens_.skip_name("not");
  const std::string name = parse_dotted_name();
  if (find_test(name) == nullptr && optional_ == 0)
    TokenReader::fail("No test named '" + name + "'.", line);
  CallArguments arguments;
  const Token& token = tokens_.current();
  if (token.is_operator("(")) {
    arguments = parse_arguments();
  } else if ((token.type == TokenType::kName && token.text != "else" && token.text != "or" &&
              token.text != "and") ||
             token.type == TokenType::kString || token.type == TokenType::kInteger ||
             token.type == TokenType::kFloat || token.is_operator("[") || token.is_operator("{")) {
    if (token.is_name("is")) tokens_.fail("You cannot chain multiple tests with is");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  e = std::make_unique<const Test>(line, std::move(e), name, std::move(arguments));
  if (negated) e = std::make_unique<const Unary>(line, UnaryOp::kNot, std::move(e));
  return e;
}

CallArguments ExpressionParser::parse_arguments() {
  const int line = tokens_.expect_operator("(").line;
  CallArguments arguments;
  const auto require = [&](bool allowed) {
    if (!allowed) TokenReader::fail("invalid syntax for function call expression", line);
  };
  while (!tokens_.at_operator(")")) {
    if (tokens_.skip_operator("*")) {
      require(!arguments.more_positional && !arguments.more_keywords);
      arguments.more_positional = parse();
    } else if (tokens_.skip_operator("**")) {
      require(!arguments.more_keywords);
      arguments.more_keywords = parse();
    } else if (tokens_.at(TokenType::kName) && tokens_.ahead().is_operator("=")) {
      require(!arguments.more_keywords);
      const std::string name = tokens_.next().text;
      tokens_.next();
      arguments.keywords.emplace_back(name, parse());
    } else {
      require(!arguments.more_positional && !arguments.more_keywords && arguments.keywords.empty());
      arguments.positional.push_back(parse());
    }
    if (!tokens_.at_operator(")")) tokens_.expect_operator(",");
  }
  tokens_.expect_operator(")");
  return arguments;
}

Target ExpressionParser::parse_name_target() {
  const Token& token = tokens_.expect(TokenType::kName);
  Target target;
  target.name_text = token.text;
  target.name = names_.intern(token.text);
  return target;
}

Target ExpressionParser::parse_one_target(bool with_namespace) {
  if (tokens_.skip_operator("(")) {
    Target target = parse_target(with_namespace);
    tokens_.expect_operator(")");
    return target;
  }
  if (!tokens_.at(TokenType::kName))
    tokens_.fail("can't assign to '" + describe(tokens_.current()) + "'");
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (tokens_.at_name(constant)) tokens_.fail("can't assign to '" + std::string(constant) + "'");
  }
  Target target = parse_name_target();
  if (with_namespace && tokens_.skip_operator("."))
    target.attribute = tokens_.expect(TokenType::kName).text;
  return target;
}

Target ExpressionParser::parse_target(bool with_namespace, std::string_view end) {
  std::vector<Target> members;
  bool tuple = false;
  if (at_tuple_end({}))
    tokens_.fail("Expected an expression, got '" + describe(tokens_.current()) + "'");
  while (members.empty() || !at_tuple_end(end)) {
    // After a comma the end may come; the first target may be called as the end is.
    members.push_back(parse_one_target(with_namespace));
    if (!tokens_.skip_operator(",")) break;
    tuple = true;
  }
  if (!tuple) return std::move(members.front());
  Target target;
  target.tuple = true;
  target.members = std::move(members);
  return target;
}

}  // namespace minisgl::jinja
