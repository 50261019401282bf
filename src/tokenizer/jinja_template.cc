#include "tokenizer/jinja_template.h"

#include "tokenizer/jinja_parser.h"

namespace minisgl::jinja {

Template::Template(std::string_view source) : body_(parse_template(source, names_)) {}

MarkedText Template::render(const Variables& variables, const std::tm& now,
                            const Limits& limits) const {
  Context ctx(now, limits);
  ScopePool scopes;  // dies first: its values may hold namespaces, which ctx empties
  StrBuilder out;
  Scope& globals = scopes.take(nullptr);
  for (const auto& [name, value] : variables) {
    const NameId id = names_.find(name);
    if (id >= 0) globals.set(id, value);
  }
  Frame frame{ctx, scopes, globals, out};
  exec_body(body_, frame);
  return out.build_marked();
}

}  // namespace minisgl::jinja
