#include "tokenizer/jinja_statements.h"

#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

class AutoescapeGuard {
 public:
  AutoescapeGuard(Context& ctx, bool on) : ctx_(ctx), before_(ctx.autoescape()) {
    ctx.set_autoescape(on);
  }
  ~AutoescapeGuard() { ctx_.set_autoescape(before_); }
  AutoescapeGuard(const AutoescapeGuard&) = delete;
  AutoescapeGuard& operator=(const AutoescapeGuard&) = delete;

 private:
  Context& ctx_;
  bool before_;
};

void unpack(Frame& frame, const std::vector<Target>& members, const Value& v) {
  const auto items = try_iterate(frame.ctx, v);
  if (!items)
    throw TemplateError("cannot unpack non-iterable " + std::string(type_name(v)) + " object");
  const std::size_t n = (*items)->size();
  const std::string expected = std::to_string(members.size());
  if (n > members.size())
    throw TemplateError("too many values to unpack (expected " + expected + ")");
  if (n < members.size())
    throw TemplateError("not enough values to unpack (expected " + expected + ", got " +
                        std::to_string(n) + ")");
  for (std::size_t i = 0; i < n; ++i) members[i].assign(frame, (*items)->items()[i]);
}

Value filtered(Frame& frame, const std::vector<FilterCall>& filters, Value v) {
  for (const FilterCall& filter : filters) v = filter.apply(frame, v);
  return v;
}

}  // namespace

Flow Statement::exec(Frame& frame) const {
  try {
    const Context::Nesting nesting(frame.ctx);
    frame.ctx.charge(1);
    return run(frame);
  } catch (const TemplateError& e) {
    if (e.line() != 0) throw;
    throw TemplateError(e.what(), line_, e.raised());
  }
}

Flow exec_body(const Body& body, Frame& frame) {
  for (const auto& statement : body) {
    const Flow flow = statement->exec(frame);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Str exec_to_text(const Body& body, Frame& frame, Flow& flow) {
  const InnerScope scope(frame.scopes, frame.scope);
  StrBuilder text;
  Frame inner{frame.ctx, frame.scopes, *scope, text};
  flow = exec_body(body, inner);
  return text.build(frame.ctx.autoescape());
}

void write_value(Frame& frame, const Value& v) {
  Context& ctx = frame.ctx;
  if (v.is_string()) ctx.charge_bytes(static_cast<double>(v.as_string().size()));
  if (ctx.autoescape()) {
    frame.out.append(escape_html(to_str(ctx, v)));
  } else {
    append_str(ctx, v, frame.out);
  }
  ctx.check_bytes(frame.out.size());
}

void Target::assign(Frame& frame, const Value& v) const {
  if (tuple) return unpack(frame, members, v);
  if (attribute.empty()) return frame.scope.set(name, v);
  const Value* holder = frame.scope.find(name);
  if (holder == nullptr) throw TemplateError("'" + name_text + "' is undefined");
  auto* ns = holder->object_as<Namespace>();
  if (ns == nullptr) throw TemplateError("cannot assign attribute on non-namespace object");
  ns->set(Value::string(attribute), v);
}

Flow Output::run(Frame& frame) const {
  for (const Part& part : parts_) {
    if (const auto* text = std::get_if<std::string>(&part)) {
      frame.out.append(*text);
      frame.ctx.check_bytes(frame.out.size());
      frame.ctx.charge(1);
    } else {
      write_value(frame, std::get<ExprPtr>(part)->eval(frame));
    }
  }
  return Flow::kNext;
}

Flow If::run(Frame& frame) const {
  for (const auto& [condition, body] : branches_) {
    if (!condition || truthy(condition->eval(frame))) return exec_body(body, frame);
  }
  return Flow::kNext;
}

Flow Set::run(Frame& frame) const {
  target_.assign(frame, value_->eval(frame));
  return Flow::kNext;
}

Flow SetBlock::run(Frame& frame) const {
  Flow flow = Flow::kNext;
  Value text = Value::string(exec_to_text(body_, frame, flow));
  if (flow == Flow::kNext) target_.assign(frame, filtered(frame, filters_, std::move(text)));
  return flow;
}

Flow FilterBlock::run(Frame& frame) const {
  Flow flow = Flow::kNext;
  Value text = Value::string(exec_to_text(body_, frame, flow));
  if (flow == Flow::kNext) write_value(frame, filtered(frame, filters_, std::move(text)));
  return flow;
}

Flow Scoped::run(Frame& frame) const {
  Scope& around = from_outermost_ ? frame.scope.outermost() : frame.scope;
  const InnerScope scope(frame.scopes, around);
  Frame inner{frame.ctx, frame.scopes, *scope, frame.out};
  // The values are computed outside, so that none sees another.
  for (const auto& [target, value] : variables_) target.assign(inner, value->eval(frame));
  return exec_body(body_, inner);
}

Flow Autoescape::run(Frame& frame) const {
  const AutoescapeGuard guard(frame.ctx, truthy(on_->eval(frame)));
  const InnerScope scope(frame.scopes, frame.scope);
  Frame inner{frame.ctx, frame.scopes, *scope, frame.out};
  return exec_body(body_, inner);
}

}  // namespace minisgl::jinja
