#include "tokenizer/jinja_tests.h"

#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_string_methods.h"

namespace minisgl::jinja {
namespace {

// A test without arguments that only looks at the value.
template <bool (*kPredicate)(const Value&)>
bool plain(Context&, const Value& v, const Arguments& args) {
  const Bound bound("test", args, {});
  return kPredicate(v);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kDouble); }
bool is_number(const Value& v) { return v.to_double().has_value(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
// An undefined value can be called: that is how it fails.
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::kObject) && v.as_object()->callable());
}
bool is_escaped(const Value& v) { return v.is_string() && v.as_string().safe(); }

bool is_sequence(const Value& v) {
  if (v.is(Kind::kObject)) return v.as_object()->is_sequence();
  // An undefined value has both a length and, by failing in its own way, items.
  return v.is_string() || v.is(Kind::kList) || v.is(Kind::kDict) || v.is_undefined();
}

Value modulo(Context& ctx, const Value& v, Value by) {
  return arithmetic(ctx, Arithmetic::kMod, v, by);
}

bool odd(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("odd", args, {});
  return equal(modulo(ctx, v, Value::integer(2)), Value::integer(1));
}

bool even(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("even", args, {});
  return equal(modulo(ctx, v, Value::integer(2)), Value::integer(0));
}

bool divisible(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("divisibleby", args, {"num"}, 1);
  return equal(modulo(ctx, v, bound.at(0)), Value::integer(0));
}

template <bool (*kCase)(const Str&)>
bool letter_case(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("test", args, {});
  return kCase(to_str(ctx, v));
}

template <Comparison kOp>
bool compared(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("comparison", args, {"other"}, 1);
  return compare(ctx, kOp, v, bound.at(0));
}

bool same_as(Context&, const Value& v, const Arguments& args) {
  const Bound bound("sameas", args, {"other"}, 1);
  return v.same_as(bound.at(0));
}

bool is_filter(Context&, const Value& v, const Arguments& args) {
  const Bound bound("filter", args, {});
  return v.is_string() && find_filter(v.as_string().text()) != nullptr;
}

bool is_test(Context&, const Value& v, const Arguments& args) {
  const Bound bound("test", args, {});
  return v.is_string() && find_test(v.as_string().text()) != nullptr;
}

using Table = std::unordered_map<std::string_view, TestBody>;

const Table& table() {
  static const Table kTable{
      {"!=", compared<Comparison::kNe>},
      {"<", compared<Comparison::kLt>},
      {"<=", compared<Comparison::kLe>},
      {"==", compared<Comparison::kEq>},
      {">", compared<Comparison::kGt>},
      {">=", compared<Comparison::kGe>},
      {"boolean", plain<is_boolean>},
      {"callable", plain<is_callable>},
      {"defined", plain<is_defined>},
      {"divisibleby", divisible},
      {"eq", compared<Comparison::kEq>},
      {"equalto", compared<Comparison::kEq>},
      {"escaped", plain<is_escaped>},
      {"even", even},
      {"false", plain<is_false>},
      {"filter", is_filter},
      {"float", plain<is_float>},
      {"ge", compared<Comparison::kGe>},
      {"greaterthan", compared<Comparison::kGt>},
      {"gt", compared<Comparison::kGt>},
      {"in", compared<Comparison::kIn>},
      {"integer", plain<is_integer>},
      {"iterable", plain<is_iterable>},
      {"le", compared<Comparison::kLe>},
      {"lessthan", compared<Comparison::kLt>},
      {"lower", letter_case<is_all_lower>},
      {"lt", compared<Comparison::kLt>},
      {"mapping", plain<is_mapping>},
      {"ne", compared<Comparison::kNe>},
      {"none", plain<is_none>},
      {"number", plain<is_number>},
      {"odd", odd},
      {"sameas", same_as},
      {"sequence", plain<is_sequence>},
      {"string", plain<is_string>},
      {"test", is_test},
      {"true", plain<is_true>},
      {"undefined", plain<is_undefined>},
      {"upper", letter_case<is_all_upper>},
  };
  return kTable;
}

}  // namespace

TestBody find_test(std::string_view name) {
  const auto it = table().find(name);
  return it == table().end() ? nullptr : it->second;
}

TestBody require_test(std::string_view name) {
  const TestBody body = find_test(name);
  if (body == nullptr) throw TemplateError("No test named '" + std::string(name) + "'.");
  return body;
}

}  // namespace minisgl::jinja
