#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

namespace minisgl::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  StatementParser(std::string_view source, NameTable& names)
      : tokens_(tokenize(source)), names_(names), expressions_(tokens_, names) {}

  Body parse() {
    Body body = parse_until({});
    return body;
  }

 private:
  using Handler = std::unique_ptr<const Statement> (StatementParser::*)();
  struct Tag {
    std::string_view name;
    Handler handler;
  };

  template <class T, class... Args>
  std::unique_ptr<const Statement> make(int line, Args&&... args) {
    return std::make_unique<const T>(line, std::forward<Args>(args)...);
  }

  // Statements up to a tag of `ends`, whose name is then the current token; up to the end of the
  // template when `ends` is empty.
  Body parse_until(EndTags ends);
  // As above, for a tag's body: from the end of the tag on.
  Body parse_body(EndTags ends) {
    tokens_.skip_operator(":");
    tokens_.expect(TokenType::kBlockEnd);
    return parse_until(ends);
  }
  // A body that a single end tag closes; moves over its name.
  Body parse_whole_body(std::string_view end) {
    Body body = parse_body({end});
    tokens_.next();
    return body;
  }

  void parse_tag(Body& body);
  [[noreturn]] void fail_end(const std::string* tag, int line) const;

  std::unique_ptr<const Statement> parse_set();
  std::unique_ptr<const Statement> parse_if();
  std::unique_ptr<const Statement> parse_for();
  std::unique_ptr<const Statement> parse_macro();
  std::unique_ptr<const Statement> parse_call();
  std::unique_ptr<const Statement> parse_filter();
  std::unique_ptr<const Statement> parse_with();
  std::unique_ptr<const Statement> parse_autoescape();
  std::unique_ptr<const Statement> parse_block();
  std::unique_ptr<const Statement> parse_generation();
  std::unique_ptr<const Statement> parse_print();
  std::unique_ptr<const Statement> parse_break();
  std::unique_ptr<const Statement> parse_continue();
  std::unique_ptr<const Statement> parse_jump(Flow flow);
  void parse_parameters(MacroCode& code);
  void parse_macro_body(MacroCode& code, std::string_view end);

  static constexpr Tag kTags[] = {
      {"autoescape", &StatementParser::parse_autoescape},
      {"block", &StatementParser::parse_block},
      {"break", &StatementParser::parse_break},
      {"call", &StatementParser::parse_call},
      {"continue", &StatementParser::parse_continue},
      {"filter", &StatementParser::parse_filter},
      {"for", &StatementParser::parse_for},
      {"generation", &StatementParser::parse_generation},
      {"if", &StatementParser::parse_if},
      {"macro", &StatementParser::parse_macro},
      {"print", &StatementParser::parse_print},
      {"set", &StatementParser::parse_set},
      {"with", &StatementParser::parse_with},
  };

  TokenReader tokens_;
  NameTable& names_;
  ExpressionParser expressions_;
  std::vector<std::vector<std::string>> ends_;  // tags that may come next, by open block
  std::vector<std::string> open_;               // names of the open blocks
  int loops_ = 0;                               // open loops in the macro being parsed
};

// Adjacent text and expressions become one statement.
Body StatementParser::parse_until(EndTags ends) {
  Body body;
  std::vector<Output::Part> parts;
  int parts_line = 0;
  const auto flush = [&] {
    if (parts.empty()) return;
    body.push_back(std::make_unique<const Output>(parts_line, std::move(parts)));
    parts.clear();
  };
  if (ends.size() > 0) ends_.emplace_back(ends.begin(), ends.end());
  while (!tokens_.at(TokenType::kEnd)) {
    const Token& token = tokens_.next();
    expressions_.start_tag();
    if (parts.empty()) parts_line = token.line;
    if (token.type == TokenType::kData) {
      parts.emplace_back(token.text);
    } else if (token.type == TokenType::kVariableBegin) {
      parts.emplace_back(expressions_.parse_tuple());
      tokens_.expect(TokenType::kVariableEnd);
    } else {
      flush();
      const bool at_end = std::any_of(ends.begin(), ends.end(),
                                      [&](std::string_view end) { return tokens_.at_name(end); });
      if (at_end) {
        ends_.pop_back();
        return body;
      }
      parse_tag(body);
      tokens_.expect(TokenType::kBlockEnd);
    }
  }
  if (ends.size() > 0) fail_end(nullptr, tokens_.current().line);
  flush();
  return body;
}

void StatementParser::parse_tag(Body& body) {
  const Token& token = tokens_.current();
  if (token.type != TokenType::kName) tokens_.fail("tag name expected");
  if (open_.size() >= static_cast<std::size_t>(kMaxSourceNesting))
    tokens_.fail("blocks are nested deeper than " + std::to_string(kMaxSourceNesting) + " levels");
  for (const std::string_view other : {"include", "extends", "import", "from"}) {
    if (token.text == other)
      tokens_.fail("the statement '" + token.text +
                   "' is not supported: a chat template is one text, without other files");
  }
  const auto* tag = std::find_if(std::begin(kTags), std::end(kTags),
                                 [&](const Tag& t) { return t.name == token.text; });
  if (tag == std::end(kTags)) fail_end(&token.text, token.line);
  open_.push_back(token.text);
  body.push_back((this->*tag->handler)());
  open_.pop_back();
}

// The message for an unknown tag, or for the end of the template (null) inside a block.
void StatementParser::fail_end(const std::string* tag, int line) const {
  std::string message =
      tag ? "Encountered unknown tag '" + *tag + "'." : "Unexpected end of template.";
  if (!ends_.empty()) {
    std::string looking_for;
    bool known = false;
    for (const std::string& end : ends_.back())
      looking_for += (looking_for.empty() ? "'" : " or '") + end + "'";
    for (const auto& ends : ends_)
      known = known || (tag && std::find(ends.begin(), ends.end(), *tag) != ends.end());
    message += known ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                       "currently looking for " +
                           looking_for + "."
                     : " Jinja was looking for the following tags: " + looking_for + ".";
  }
  if (!open_.empty())
    message += " The innermost block that needs to be closed is '" + open_.back() + "'.";
  TokenReader::fail(message, line);
}

std::unique_ptr<const Statement> StatementParser::parse_set() {
  const int line = tokens_.next().line;
  Target target = expressions_.parse_target(/*with_namespace=*/true);
  if (tokens_.skip_operator("="))
    return make<Set>(line, std::move(target), expressions_.parse_tuple());
  std::vector<FilterCall> filters = expressions_.parse_filters(/*start_inline=*/false);
  return make<SetBlock>(line, std::move(target), std::move(filters), parse_whole_body("endset"));
}

std::unique_ptr<const Statement> StatementParser::parse_if() {
  const int line = tokens_.next().line;
  std::vector<If::Branch> branches;
  expressions_.enter_optional();
  while (true) {
    ExprPtr condition = expressions_.parse_tuple(/*conditional=*/false);
    Body body = parse_body({"elif", "else", "endif"});
    branches.emplace_back(std::move(condition), std::move(body));
    const std::string& tag = tokens_.next().text;
    if (tag == "elif") continue;
    if (tag == "else") branches.emplace_back(nullptr, parse_whole_body("endif"));
    break;
  }
  expressions_.leave_optional();
  return make<If>(line, std::move(branches));
}

std::unique_ptr<const Statement> StatementParser::parse_for() {
  const int line = tokens_.next().line;
  For::Parts parts;
  parts.target = expressions_.parse_target(/*with_namespace=*/false, "in");
  tokens_.expect_name("in");
  parts.iterable = expressions_.parse_tuple(/*conditional=*/false, "recursive");
  if (tokens_.skip_name("if")) parts.condition = expressions_.parse();
  parts.recursive = tokens_.skip_name("recursive");
  ++loops_;
  parts.body = parse_body({"endfor", "else"});
  --loops_;
  if (tokens_.next().text == "else") parts.otherwise = parse_whole_body("endfor");
  return make<For>(line, names_.intern("loop"), std::move(parts));
}

std::unique_ptr<const Statement> StatementParser::parse_jump(Flow flow) {
  const Token& token = tokens_.next();
  if (loops_ == 0) TokenReader::fail("'" + token.text + "' outside loop", token.line);
  return make<Jump>(token.line, flow);
}

std::unique_ptr<const Statement> StatementParser::parse_break() { return parse_jump(Flow::kBreak); }

std::unique_ptr<const Statement> StatementParser::parse_continue() {
  return parse_jump(Flow::kContinue);
}

void StatementParser::parse_parameters(MacroCode& code) {
  tokens_.expect_operator("(");
  while (!tokens_.at_operator(")")) {
    MacroCode::Parameter p;
    const Target target = expressions_.parse_name_target();
    p.id = target.name;
    p.name = target.name_text;
    if (tokens_.skip_operator("=")) {
      p.fallback = expressions_.parse();
    } else if (!code.parameters.empty() && code.parameters.back().fallback) {
      tokens_.fail("non-default argument follows default argument");
    }
    code.parameters.push_back(std::move(p));
    if (!tokens_.at_operator(")")) tokens_.expect_operator(",");
  }
  tokens_.next();
}

// A macro takes `caller`, `varargs` and `kwargs` when its body mentions them, however deep.
void StatementParser::parse_macro_body(MacroCode& code, std::string_view end) {
  const ExpressionParser::Specials before = expressions_.specials();
  expressions_.specials() = {};
  const int loops = std::exchange(loops_, 0);
  code.body = parse_whole_body(end);
  loops_ = loops;
  ExpressionParser::Specials& used = expressions_.specials();
  code.uses_caller = used.caller;
  code.uses_varargs = used.varargs;
  code.uses_kwargs = used.kwargs;
  code.caller = names_.intern("caller");
  code.varargs = names_.intern("varargs");
  code.kwargs = names_.intern("kwargs");
  used.caller = used.caller || before.caller;
  used.varargs = used.varargs || before.varargs;
  used.kwargs = used.kwargs || before.kwargs;
}

std::unique_ptr<const Statement> StatementParser::parse_macro() {
  const int line = tokens_.next().line;
  const Target name = expressions_.parse_name_target();
  MacroCode code;
  code.name = name.name_text;
  parse_parameters(code);
  parse_macro_body(code, "endmacro");
  return make<MacroDefinition>(line, name.name, std::move(code));
}

std::unique_ptr<const Statement> StatementParser::parse_call() {
  const int line = tokens_.next().line;
  MacroCode code;
  if (tokens_.at_operator("(")) parse_parameters(code);
  std::unique_ptr<const Call> call = expressions_.parse_call_expression();
  parse_macro_body(code, "endcall");
  return make<CallBlock>(line, std::move(call), std::move(code));
}

std::unique_ptr<const Statement> StatementParser::parse_filter() {
  const int line = tokens_.next().line;
  std::vector<FilterCall> filters = expressions_.parse_filters(/*start_inline=*/true);
  return make<FilterBlock>(line, std::move(filters), parse_whole_body("endfilter"));
}

std::unique_ptr<const Statement> StatementParser::parse_with() {
  const int line = tokens_.next().line;
  std::vector<std::pair<Target, ExprPtr>> variables;
  while (!tokens_.at(TokenType::kBlockEnd)) {
    if (!variables.empty()) tokens_.expect_operator(",");
    Target target = expressions_.parse_name_target();
    tokens_.expect_operator("=");
    variables.emplace_back(std::move(target), expressions_.parse());
  }
  return make<Scoped>(line, std::move(variables), parse_whole_body("endwith"));
}

std::unique_ptr<const Statement> StatementParser::parse_autoescape() {
  const int line = tokens_.next().line;
  ExprPtr on = expressions_.parse();
  return make<Autoescape>(line, std::move(on), parse_whole_body("endautoescape"));
}

std::unique_ptr<const Statement> StatementParser::parse_block() {
  const int line = tokens_.next().line;
  const std::string name = tokens_.expect(TokenType::kName).text;
  const bool scoped = tokens_.skip_name("scoped");
  if (tokens_.at_name("required"))
    tokens_.fail("the block '" + name + "' is required, but no other template can fill it");
  Body body = parse_whole_body("endblock");
  tokens_.skip_name(name);
  return make<Scoped>(line, std::vector<std::pair<Target, ExprPtr>>(), std::move(body),
                      /*from_outermost=*/!scoped);
}

std::unique_ptr<const Statement> StatementParser::parse_generation() {
  // transformers marks what the assistant writes with it; it prints its body.
  const int line = tokens_.next().line;
  return make<Scoped>(line, std::vector<std::pair<Target, ExprPtr>>(),
                      parse_whole_body("endgeneration"));
}

std::unique_ptr<const Statement> StatementParser::parse_print() {
  const int line = tokens_.next().line;
  std::vector<Output::Part> parts;
  while (!tokens_.at(TokenType::kBlockEnd)) {
    if (!parts.empty()) tokens_.expect_operator(",");
    parts.emplace_back(expressions_.parse());
  }
  return make<Output>(line, std::move(parts));
}

}  // namespace

Body parse_template(std::string_view source, NameTable& names) {
  return StatementParser(source, names).parse();
}

}  // namespace minisgl::jinja
