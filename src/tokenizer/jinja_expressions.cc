#include "tokenizer/jinja_expressions.h"

#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

Value Expr::eval(Frame& frame) const {
  try {
    const Context::Nesting nesting(frame.ctx);
    frame.ctx.charge(1);
    return compute(frame);
  } catch (const TemplateError& e) {
    if (e.line() != 0) throw;
    throw TemplateError(e.what(), line_, e.raised());
  }
}

Arguments CallArguments::eval(Frame& frame) const {
  Arguments args;
  args.positional.reserve(positional.size());
  for (const ExprPtr& e : positional) args.positional.push_back(e->eval(frame));
  if (more_positional) {
    const ListRef more = iterate(frame.ctx, more_positional->eval(frame));
    frame.ctx.charge(static_cast<std::int64_t>(more->size()));
    args.positional.insert(args.positional.end(), more->items().begin(), more->items().end());
  }
  for (const auto& [name, e] : keywords) args.keywords.emplace_back(name, e->eval(frame));
  if (more_keywords) {
    const Value more = more_keywords->eval(frame);
    if (!more.is(Kind::kDict)) throw TemplateError("argument after ** must be a mapping");
    for (const auto& [key, value] : more.as_dict().entries()) {
      if (!key.is_string()) throw TemplateError("keywords must be strings");
      args.keywords.emplace_back(key.as_string().text(), value);
    }
  }
  return args;
}

Value FilterCall::apply(Frame& frame, const Value& v) const {
  try {
    frame.ctx.charge(1);
    if (body == nullptr) require_filter(name);
    return body(frame.ctx, v, arguments.eval(frame));
  } catch (const TemplateError& e) {
    if (e.line() != 0) throw;
    throw TemplateError(e.what(), line, e.raised());
  }
}

Value Name::compute(Frame& frame) const {
  if (const Value* v = frame.scope.find(id_)) return *v;
  if (builtin_) return *builtin_;
  return Value::undefined("'" + name_ + "' is undefined");
}

Value Sequence::compute(Frame& frame) const {
  std::vector<Value> values;
  values.reserve(items_.size());
  for (const ExprPtr& item : items_) values.push_back(item->eval(frame));
  return tuple_ ? Value::tuple(std::move(values)) : Value::list(std::move(values));
}

Value DictLiteral::compute(Frame& frame) const {
  Dict dict;
  for (const auto& [key, value] : entries_) {
    Value k = key->eval(frame);
    dict.set(std::move(k), value->eval(frame));
  }
  return Value::dict(std::move(dict));
}

Value Attribute::compute(Frame& frame) const {
  return get_attribute(frame.ctx, object_->eval(frame), name_);
}

Value Item::compute(Frame& frame) const {
  const Value object = object_->eval(frame);
  return get_item(frame.ctx, object, key_->eval(frame));
}

Value Slice::compute(Frame& frame) const {
  const auto bound = [&](const ExprPtr& e) { return e ? e->eval(frame) : Value(); };
  const Value object = object_->eval(frame);
  const Value start = bound(start_);
  const Value stop = bound(stop_);
  return get_slice(frame.ctx, object, start, stop, bound(step_));
}

Value Call::compute(Frame& frame) const {
  const Value function = function_->eval(frame);
  return call_value(frame.ctx, function, arguments_.eval(frame));
}

Value Call::eval_with_caller(Frame& frame, Value caller) const {
  try {
    const Value function = function_->eval(frame);
    Arguments args = arguments_.eval(frame);
    args.keywords.emplace_back("caller", std::move(caller));
    return call_value(frame.ctx, function, args);
  } catch (const TemplateError& e) {
    if (e.line() != 0) throw;
    throw TemplateError(e.what(), line(), e.raised());
  }
}

Value Filter::compute(Frame& frame) const { return filter_.apply(frame, operand_->eval(frame)); }

Value Test::compute(Frame& frame) const {
  if (body_ == nullptr) require_test(name_);
  const Value v = operand_->eval(frame);
  return Value::boolean(body_(frame.ctx, v, arguments_.eval(frame)));
}

Value Unary::compute(Frame& frame) const {
  const Value v = operand_->eval(frame);
  switch (op_) {
    case UnaryOp::kNot: return Value::boolean(!truthy(v));
    case UnaryOp::kNegate: return negate(v);
    case UnaryOp::kPlus: return posit(v);
  }
  return v;
}

Value Binary::compute(Frame& frame) const {
  const Value left = left_->eval(frame);
  return arithmetic(frame.ctx, op_, left, right_->eval(frame));
}

Value Concat::compute(Frame& frame) const {
  std::vector<Str> pieces;
  pieces.reserve(parts_.size());
  bool any_safe = false;
  for (const ExprPtr& part : parts_) {
    pieces.push_back(to_str(frame.ctx, part->eval(frame)));
    frame.ctx.charge_bytes(static_cast<double>(pieces.back().size()));
    any_safe = any_safe || pieces.back().safe();
  }
  const bool safe = any_safe && frame.ctx.autoescape();
  StrBuilder out;
  for (const Str& piece : pieces) out.append(safe ? escape_html(piece) : piece);
  frame.ctx.check_bytes(out.size());
  return Value::string(out.build(safe));
}

Value Logical::compute(Frame& frame) const {
  Value left = left_->eval(frame);
  if (truthy(left) != is_and_) return left;
  return right_->eval(frame);
}

Value CompareChain::compute(Frame& frame) const {
  Value left = first_->eval(frame);
  for (const auto& [op, e] : rest_) {
    Value right = e->eval(frame);
    if (!compare(frame.ctx, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Conditional::compute(Frame& frame) const {
  if (truthy(condition_->eval(frame))) return then_->eval(frame);
  if (otherwise_) return otherwise_->eval(frame);
  return Value::undefined("the inline if-expression on line " + std::to_string(line()) +
                          " evaluated to false and no else section was defined.");
}

}  // namespace minisgl::jinja
