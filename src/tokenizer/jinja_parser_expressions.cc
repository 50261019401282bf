// The grammar of expressions (declared in jinja_parser.h).

#include <algorithm>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_parser.h"

namespace minisgl::jinja {
namespace {

// Counts how deep the source is nested while it lives.
class DepthGuard {
 public:
  DepthGuard(int& depth, int line) : depth_(depth) {
    if (++depth_ > kMaxSourceNesting) {
      --depth_;
      TokenReader::fail(
          "expressions are nested deeper than " + std::to_string(kMaxSourceNesting) + " levels",
          line);
    }
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace

bool TokenReader::skip_operator(std::string_view symbol) {
  const bool there = at_operator(symbol);
  if (there) next();
  return there;
}

bool TokenReader::skip_name(std::string_view name) {
  const bool there = at_name(name);
  if (there) next();
  return there;
}

void TokenReader::fail_expected(const std::string& expected) const {
  if (at(TokenType::kEnd)) fail("unexpected end of template, expected '" + expected + "'.");
  fail("expected token '" + expected + "', got '" + describe(current()) + "'");
}

const Token& TokenReader::expect(TokenType type) {
  if (!at(type)) {
    Token wanted;
    wanted.type = type;
    if (type == TokenType::kName) wanted.text = "name";
    fail_expected(describe(wanted));
  }
  return next();
}

const Token& TokenReader::expect_operator(std::string_view symbol) {
  if (!at_operator(symbol)) fail_expected(std::string(symbol));
  return next();
}

const Token& TokenReader::expect_name(std::string_view name) {
  if (!at_name(name)) fail_expected(std::string(name));
  return next();
}

void ExpressionParser::count_part(int line) {
  if (++parts_ > kMaxExpressionParts)
    TokenReader::fail(
        "one tag has more than " + std::to_string(kMaxExpressionParts) + " parts of expressions",
        line);
}

template <class T, class... Args>
ExprPtr ExpressionParser::make(int line, Args&&... args) {
  count_part(line);
  return std::make_unique<const T>(line, std::forward<Args>(args)...);
}

ExprPtr ExpressionParser::parse(bool conditional) {
  const DepthGuard guard(depth_, tokens_.current().line);
  return conditional ? parse_conditional() : parse_or();
}

bool ExpressionParser::at_tuple_end(std::string_view end) const {
  return tokens_.at(TokenType::kVariableEnd) || tokens_.at(TokenType::kBlockEnd) ||
         tokens_.at_operator(")") || (!end.empty() && tokens_.at_name(end));
}

ExprPtr ExpressionParser::parse_tuple(bool conditional, std::string_view end) {
  const int line = tokens_.current().line;
  std::vector<ExprPtr> items;
  bool tuple = false;
  while (!at_tuple_end(end)) {
    items.push_back(parse(conditional));
    if (!tokens_.skip_operator(",")) break;
    tuple = true;
  }
  if (tuple) return make<Sequence>(line, std::move(items), /*tuple=*/true);
  if (items.empty())
    tokens_.fail("Expected an expression, got '" + describe(tokens_.current()) + "'");
  return std::move(items.front());
}

ExprPtr ExpressionParser::parse_conditional() {
  int line = tokens_.current().line;
  ExprPtr e = parse_or();
  while (tokens_.skip_name("if")) {
    ExprPtr condition = parse_or();
    ExprPtr otherwise;
    if (tokens_.skip_name("else")) {
      const DepthGuard guard(depth_, line);
      otherwise = parse_conditional();
    }
    e = make<Conditional>(line, std::move(condition), std::move(e), std::move(otherwise));
    line = tokens_.current().line;
  }
  return e;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr e = parse_and();
  while (tokens_.at_name("or")) {
    const int line = tokens_.next().line;
    ExprPtr right = parse_and();
    e = make<Logical>(line, /*is_and=*/false, std::move(e), std::move(right));
  }
  return e;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr e = parse_not();
  while (tokens_.at_name("and")) {
    const int line = tokens_.next().line;
    ExprPtr right = parse_not();
    e = make<Logical>(line, /*is_and=*/true, std::move(e), std::move(right));
  }
  return e;
}

ExprPtr ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_compare();
  const int line = tokens_.next().line;
  const DepthGuard guard(depth_, line);
  return make<Unary>(line, UnaryOp::kNot, parse_not());
}

ExprPtr ExpressionParser::parse_compare() {
  const auto operation = [&]() -> std::optional<Comparison> {
    constexpr std::pair<std::string_view, Comparison> kOperators[] = {
        {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<", Comparison::kLt},
        {"<=", Comparison::kLe}, {">", Comparison::kGt},  {">=", Comparison::kGe}};
    for (const auto& [symbol, op] : kOperators) {
      if (tokens_.skip_operator(symbol)) return op;
    }
    if (tokens_.skip_name("in")) return Comparison::kIn;
    if (tokens_.at_name("not") && tokens_.ahead().is_name("in")) {
      tokens_.next();
      tokens_.next();
      return Comparison::kNotIn;
    }
    return std::nullopt;
  };
  const int line = tokens_.current().line;
  ExprPtr first = parse_sum();
  std::vector<std::pair<Comparison, ExprPtr>> rest;
  while (const auto op = operation()) rest.emplace_back(*op, parse_sum());
  if (rest.empty()) return first;
  return make<CompareChain>(line, std::move(first), std::move(rest));
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr e = parse_concat();
  while (tokens_.at_operator("+") || tokens_.at_operator("-")) {
    const Token& op = tokens_.next();
    ExprPtr right = parse_concat();
    e = make<Binary>(op.line, op.text == "+" ? Arithmetic::kAdd : Arithmetic::kSub, std::move(e),
                     std::move(right));
  }
  return e;
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = tokens_.current().line;
  std::vector<ExprPtr> parts;
  do {
    parts.push_back(parse_product());
  } while (tokens_.skip_operator("~"));
  return parts.size() == 1 ? std::move(parts.front()) : make<Concat>(line, std::move(parts));
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr e = parse_power();
  while (true) {
    const Token& op = tokens_.current();
    Arithmetic kind{};
    if (op.is_operator("*")) {
      kind = Arithmetic::kMul;
    } else if (op.is_operator("/")) {
      kind = Arithmetic::kDiv;
    } else if (op.is_operator("//")) {
      kind = Arithmetic::kFloorDiv;
    } else if (op.is_operator("%")) {
      kind = Arithmetic::kMod;
    } else {
      return e;
    }
    tokens_.next();
    ExprPtr right = parse_power();
    e = make<Binary>(op.line, kind, std::move(e), std::move(right));
  }
}

ExprPtr ExpressionParser::parse_power() {
  // From the left and weaker than a sign, unlike Python: 2 ** 3 ** 2 is 64, -2 ** 2 is 4.
  ExprPtr e = parse_unary(/*with_filter=*/true);
  while (tokens_.at_operator("**")) {
    const int line = tokens_.next().line;
    ExprPtr right = parse_unary(/*with_filter=*/true);
    e = make<Binary>(line, Arithmetic::kPow, std::move(e), std::move(right));
  }
  return e;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  ExprPtr e = parse_postfix(parse_signed());
  return with_filter ? parse_filter_expr(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::parse_signed() {
  const bool minus = tokens_.at_operator("-");
  if (!minus && !tokens_.at_operator("+")) return parse_primary();
  const int line = tokens_.next().line;
  const DepthGuard guard(depth_, line);
  return make<Unary>(line, minus ? UnaryOp::kNegate : UnaryOp::kPlus,
                     parse_unary(/*with_filter=*/false));
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = tokens_.current();
  switch (token.type) {
    case TokenType::kName: return parse_name();
    case TokenType::kString: return parse_strings();
    case TokenType::kInteger:
    case TokenType::kFloat: tokens_.next(); return make<Constant>(token.line, token.number);
    default: break;
  }
  if (token.is_operator("(")) return parse_parenthesized();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  tokens_.fail("unexpected '" + describe(token) + "'");
}

ExprPtr ExpressionParser::parse_name() {
  const Token& token = tokens_.next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make<Constant>(token.line, Value::boolean(true));
  if (name == "false" || name == "False") return make<Constant>(token.line, Value::boolean(false));
  if (name == "none" || name == "None") return make<Constant>(token.line, Value::none());
  specials_.caller = specials_.caller || name == "caller";
  specials_.varargs = specials_.varargs || name == "varargs";
  specials_.kwargs = specials_.kwargs || name == "kwargs";
  return make<Name>(token.line, names_.intern(name), name, find_builtin(name));
}

ExprPtr ExpressionParser::parse_strings() {
  const int line = tokens_.current().line;
  std::string text;
  while (tokens_.at(TokenType::kString)) text += tokens_.next().text;
  return make<Constant>(line, Value::string(std::move(text)));
}

ExprPtr ExpressionParser::parse_parenthesized() {
  const int line = tokens_.next().line;
  const DepthGuard guard(depth_, line);
  ExprPtr e =
      tokens_.at_operator(")") ? make<Sequence>(line, std::vector<ExprPtr>(), true) : parse_tuple();
  tokens_.expect_operator(")");
  return e;
}

ExprPtr ExpressionParser::parse_list() {
  const int line = tokens_.next().line;
  std::vector<ExprPtr> items;
  while (!tokens_.at_operator("]")) {
    items.push_back(parse());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return make<Sequence>(line, std::move(items), /*tuple=*/false);
}

ExprPtr ExpressionParser::parse_dict() {
  const int line = tokens_.next().line;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
  while (!tokens_.at_operator("}")) {
    ExprPtr key = parse();
    tokens_.expect_operator(":");
    entries.emplace_back(std::move(key), parse());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return make<DictLiteral>(line, std::move(entries));
}

}  // namespace minisgl::jinja
