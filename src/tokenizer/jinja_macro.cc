// {% macro %} and {% call %} (declared in jinja_statements.h).

#include <algorithm>

#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_statements.h"

namespace minisgl::jinja {
namespace {

/// A macro, or the `caller` of a call block: its code and the scope that it was defined in.
class Macro final : public Object {
 public:
  Macro(const MacroCode& code, const Frame& frame)
      : code_(code), scopes_(frame.scopes), scope_(frame.scope) {
    scope_.capture();
  }

  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }

  void repr(Context&, StrBuilder& out) override {
    out.append("<Macro ");
    if (code_.name.empty()) {
      out.append("anonymous");
    } else {
      append_repr(Str(code_.name), out);
    }
    out.append(">");
  }

  std::optional<Value> attribute(Context&, std::string_view name) override {
    if (name == "name") return code_.name.empty() ? Value() : Value::string(code_.name);
    if (name == "catch_kwargs") return Value::boolean(code_.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(code_.uses_varargs);
    if (name == "caller") return Value::boolean(code_.uses_caller);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const auto& p : code_.parameters) names.push_back(Value::string(p.name));
    return Value::tuple(std::move(names));
  }

  Value call(Context& ctx, const Arguments& args) override {
    const Context::CallDepth depth(ctx);
    const InnerScope scope(scopes_, scope_);
    StrBuilder text;
    Frame frame{ctx, scopes_, *scope, text};
    auto keywords = args.keywords;
    bind_parameters(frame, args.positional, keywords);
    bind_extras(frame, args.positional, keywords);
    exec_body(code_.body, frame);
    return Value::string(text.build(ctx.autoescape()));
  }

 private:
  using Keywords = std::vector<std::pair<std::string, Value>>;

  // Takes the keyword out; nothing when it was not given.
  static std::optional<Value> take(Keywords& keywords, std::string_view name) {
    const auto it = std::find_if(keywords.begin(), keywords.end(),
                                 [&](const auto& k) { return k.first == name; });
    if (it == keywords.end()) return std::nullopt;
    Value v = std::move(it->second);
    keywords.erase(it);
    return v;
  }

  // A keyword that repeats a positional argument stays, and is then refused as unknown.
  void bind_parameters(Frame& frame, const std::vector<Value>& positional, Keywords& keywords) {
    for (std::size_t i = 0; i < code_.parameters.size(); ++i) {
      const auto& p = code_.parameters[i];
      if (i < positional.size()) {
        frame.scope.set(p.id, positional[i]);
      } else if (auto v = take(keywords, p.name)) {
        frame.scope.set(p.id, std::move(*v));
      } else if (p.fallback) {
        frame.scope.set(p.id, p.fallback->eval(frame));
      } else {
        frame.scope.set(p.id, Value::undefined("parameter '" + p.name + "' was not provided"));
      }
    }
  }

  void bind_extras(Frame& frame, const std::vector<Value>& positional, Keywords& keywords) {
    const bool explicit_caller = std::any_of(code_.parameters.begin(), code_.parameters.end(),
                                             [](const auto& p) { return p.name == "caller"; });
    if (code_.uses_caller && !explicit_caller) {
      frame.scope.set(code_.caller,
                      take(keywords, "caller").value_or(Value::undefined("No caller defined")));
    }
    const std::string name = code_.name.empty() ? "None" : "'" + code_.name + "'";
    if (code_.uses_kwargs) {
      Dict rest;
      for (auto& [key, value] : keywords) rest.set(key, std::move(value));
      frame.scope.set(code_.kwargs, Value::dict(std::move(rest)));
    } else if (!keywords.empty()) {
      throw TemplateError("macro " + name + " takes no keyword argument '" + keywords[0].first +
                          "'");
    }
    const std::size_t n = code_.parameters.size();
    if (code_.uses_varargs) {
      const std::size_t used = std::min(n, positional.size());
      frame.scope.set(
          code_.varargs,
          Value::tuple({positional.begin() + static_cast<std::ptrdiff_t>(used), positional.end()}));
    } else if (positional.size() > n) {
      throw TemplateError("macro " + name + " takes not more than " + std::to_string(n) +
                          " argument(s)");
    }
  }

  const MacroCode& code_;
  ScopePool& scopes_;
  Scope& scope_;
};

}  // namespace

Flow MacroDefinition::run(Frame& frame) const {
  frame.scope.set(name_, Value::object(std::make_shared<Macro>(code_, frame)));
  return Flow::kNext;
}

Flow CallBlock::run(Frame& frame) const {
  Value caller = Value::object(std::make_shared<Macro>(code_, frame));
  write_value(frame, call_->eval_with_caller(frame, std::move(caller)));
  return Flow::kNext;
}

}  // namespace minisgl::jinja
