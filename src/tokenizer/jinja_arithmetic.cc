// Python's arithmetic operators (declared in jinja_ops.h).

#include <cmath>
#include <limits>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

std::string_view symbol(Arithmetic op) {
  switch (op) {
    case Arithmetic::kAdd: return "+";
    case Arithmetic::kSub: return "-";
    case Arithmetic::kMul: return "*";
    case Arithmetic::kDiv: return "/";
    case Arithmetic::kFloorDiv: return "//";
    case Arithmetic::kMod: return "%";
    case Arithmetic::kPow: return "** or pow()";
  }
  return "";
}

[[noreturn]] void fail_overflow() {
  throw TemplateError("the result is an integer of more than 128 bits, which is not supported");
}

Int checked_multiply(Int a, Int b) {
  Int result;
  if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  return result;
}

Int floor_divide(Int a, Int b) {
  if (b == -1) return checked_multiply(a, -1);  // the one quotient that can overflow
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if (exponent % 2 != 0) result = checked_multiply(result, base);
    exponent /= 2;
    if (exponent > 0) base = checked_multiply(base, base);
  }
  return result;
}

double power(double base, double exponent) {
  if (base == 0 && exponent < 0) throw TemplateError("0.0 cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent))
    throw TemplateError("a negative number cannot be raised to a fractional power");
  if (std::isinf(result) && !std::isinf(base) && !std::isinf(exponent))
    throw TemplateError("(34, 'Numerical result out of range')");
  return result;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value integers(Arithmetic op, Int a, Int b) {
  Int result = 0;
  switch (op) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case Arithmetic::kSub:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case Arithmetic::kMul: return Value::integer(checked_multiply(a, b));
    case Arithmetic::kDiv:
      if (b == 0) throw TemplateError("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::kFloorDiv:
    case Arithmetic::kMod:
      if (b == 0)
        throw TemplateError(op == Arithmetic::kMod ? "integer modulo by zero"
                                                   : "integer division or modulo by zero");
      if (op == Arithmetic::kFloorDiv) return Value::integer(floor_divide(a, b));
      return Value::integer(b == -1 ? 0 : a - floor_divide(a, b) * b);
    case Arithmetic::kPow:
      if (b < 0) return Value::real(power(static_cast<double>(a), static_cast<double>(b)));
      return Value::integer(power(a, b));
  }
  return {};
}

Value doubles(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd: return Value::real(a + b);
    case Arithmetic::kSub: return Value::real(a - b);
    case Arithmetic::kMul: return Value::real(a * b);
    case Arithmetic::kDiv:
      if (b == 0) throw TemplateError("float division by zero");
      return Value::real(a / b);
    case Arithmetic::kFloorDiv:
      if (b == 0) throw TemplateError("float floor division by zero");
      return Value::real(std::round((a - floor_modulo(a, b)) / b));
    case Arithmetic::kMod:
      if (b == 0) throw TemplateError("float modulo");
      return Value::real(floor_modulo(a, b));
    case Arithmetic::kPow: return Value::real(power(a, b));
  }
  return {};
}

Value add_lists(Context& ctx, const List& a, const List& b) {
  ctx.charge(static_cast<std::int64_t>(a.size() + b.size()));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value repeat(Context& ctx, const Value& v, Int count) {
  if (count < 0) count = 0;
  const auto times = static_cast<double>(count);
  if (v.is_string()) {
    const Str& s = v.as_string();
    ctx.charge_bytes(static_cast<double>(s.size()) * times);
    StrBuilder out;
    for (Int i = 0; i < count && !s.empty(); ++i) out.append(s);
    return Value::string(out.build(s.safe()));
  }
  const List& list = v.as_list();
  const double total = static_cast<double>(list.size()) * times;
  ctx.charge(total < 1e15 ? static_cast<std::int64_t>(total)
                          : std::numeric_limits<std::int64_t>::max() / 2);
  std::vector<Value> items;
  for (Int i = 0; i < count && list.size() > 0; ++i)
    items.insert(items.end(), list.items().begin(), list.items().end());
  return list.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

[[noreturn]] void fail_operands(Arithmetic op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  const std::string left(type_name(a));
  const std::string right(type_name(b));
  if (op == Arithmetic::kAdd && (a.is_string() || a.is(Kind::kList))) {
    const std::string kind = a.is_string() ? "str" : left;
    throw TemplateError("can only concatenate " + kind + " (not \"" + right + "\") to " + kind);
  }
  if (op == Arithmetic::kMul && (a.is_string() || a.is(Kind::kList)))
    throw TemplateError("can't multiply sequence by non-int of type '" + right + "'");
  throw TemplateError("unsupported operand type(s) for " + std::string(symbol(op)) + ": '" + left +
                      "' and '" + right + "'");
}

}  // namespace

Value arithmetic(Context& ctx, Arithmetic op, const Value& a, const Value& b) {
  const auto i = a.to_integer();
  const auto j = b.to_integer();
  if (i && j) return integers(op, *i, *j);
  const auto x = a.to_double();
  const auto y = b.to_double();
  if (x && y) return doubles(op, *x, *y);
  if (op == Arithmetic::kAdd) {
    if (a.is_string() && b.is_string()) {
      ctx.charge_bytes(static_cast<double>(a.as_string().size() + b.as_string().size()));
      return Value::string(concat(a.as_string(), b.as_string()));
    }
    if (a.is(Kind::kList) && b.is(Kind::kList) && a.as_list().is_tuple() == b.as_list().is_tuple())
      return add_lists(ctx, a.as_list(), b.as_list());
  } else if (op == Arithmetic::kMul) {
    if ((a.is_string() || a.is(Kind::kList)) && j) return repeat(ctx, a, *j);
    if ((b.is_string() || b.is(Kind::kList)) && i) return repeat(ctx, b, *i);
  } else if (op == Arithmetic::kMod && a.is_string()) {
    return Value::string(format_percent(ctx, a.as_string(), b));
  }
  fail_operands(op, a, b);
}

Value negate(const Value& v) {
  if (const auto i = v.to_integer()) return Value::integer(checked_multiply(*i, -1));
  if (v.is(Kind::kDouble)) return Value::real(-v.as_double());
  require_defined(v);
  throw TemplateError("bad operand type for unary -: '" + std::string(type_name(v)) + "'");
}

Value posit(const Value& v) {
  if (const auto i = v.to_integer()) return Value::integer(*i);
  if (v.is(Kind::kDouble)) return v;
  require_defined(v);
  throw TemplateError("bad operand type for unary +: '" + std::string(type_name(v)) + "'");
}

}  // namespace minisgl::jinja
