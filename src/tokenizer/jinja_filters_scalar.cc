// Filters of numbers and of single values: default, int, round, tojson, attr, ...

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

Value default_filter(Context&, const Value& v, const Arguments& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  const bool replaced = v.is_undefined() || (bound.truth(1, false) && !truthy(v));
  return replaced ? bound.get(0, Value::string("")) : v;
}

// Python allows blanks around a number and single underscores between digits; the result is in
// lower case. Nothing when an underscore is misplaced.
std::optional<std::string> number_text(const Str& s) {
  const std::string text = lower(strip(s, Side::kBoth)).text();
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto alnum = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<Int> parse_int(const Str& s, std::int64_t base) {
  auto text = number_text(s);
  if (!text || text->empty()) return std::nullopt;
  const bool negative = (*text)[0] == '-';
  if (negative || (*text)[0] == '+') text->erase(0, 1);
  const std::string prefix = text->substr(0, 2);
  const std::int64_t named = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    text->erase(0, 2);
    base = named;
  } else if (base == 0) {
    base = 10;
  }
  if (text->empty()) return std::nullopt;
  Int result = 0;
  for (const char c : *text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(result, Int{base}, &result) ||
        __builtin_add_overflow(result, Int{digit}, &result))
      throw TemplateError("int(): integers of more than 128 bits are not supported");
  }
  return negative ? -result : result;
}

std::optional<double> parse_double(const Str& s) {
  auto text = number_text(s);
  if (!text || text->empty()) return std::nullopt;
  if ((*text)[0] == '+') text->erase(0, 1);
  if (text->find('(') != std::string::npos || text->starts_with("+")) return std::nullopt;
  double d = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), d);
  if (end != text->data() + text->size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(text->c_str(), nullptr);
  return error == std::errc() ? std::optional(d) : std::nullopt;
}

// int(d); nothing for inf and nan, TemplateError beyond 128 bits.
std::optional<Int> truncated(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::abs(d) >= 1.7e38)
    throw TemplateError("int(): integers of more than 128 bits are not supported");
  return static_cast<Int>(d);
}

Value int_filter(Context&, const Value& v, const Arguments& args) {
  const Bound bound("int", args, {"default", "base"});
  const Value otherwise = bound.get(0, Value::integer(0));
  require_defined(v);
  std::optional<Int> result;
  if (v.is_string()) {
    result = parse_int(v.as_string(), bound.integer(1, 10));
    if (!result) {
      if (const auto d = parse_double(v.as_string())) result = truncated(*d);
    }
  } else if (v.is(Kind::kDouble)) {
    result = truncated(v.as_double());
  } else {
    result = v.to_integer();
  }
  return result ? Value::integer(*result) : otherwise;
}

Value float_filter(Context&, const Value& v, const Arguments& args) {
  const Bound bound("float", args, {"default"});
  require_defined(v);
  const auto d = v.is_string() ? parse_double(v.as_string()) : v.to_double();
  return d ? Value::real(*d) : bound.get(0, Value::real(0));
}

Value abs_filter(Context&, const Value& v, const Arguments& args) {
  const Bound bound("abs", args, {});
  if (v.is(Kind::kDouble)) return Value::real(std::abs(v.as_double()));
  const auto i = v.to_integer();
  require_defined(v);
  if (!i) throw TemplateError("bad operand type for abs(): '" + std::string(type_name(v)) + "'");
  return *i < 0 ? negate(v) : Value::integer(*i);
}

// To a multiple of 10^digits, halves to even.
Value round_integer(Int i, std::int64_t digits) {
  Int unit = 1;
  for (std::int64_t k = 0; k < digits; ++k) {
    if (__builtin_mul_overflow(unit, Int{10}, &unit)) return Value::integer(0);
  }
  Int rest = i % unit;
  if (rest < 0) rest += unit;
  const Int below = i - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && below / unit % 2 != 0);
  return Value::integer(up ? below + unit : below);
}

double round_double(double d, std::int64_t precision) {
  if (!std::isfinite(d) || precision > 323) return d;
  if (precision < -308) return 0.0 * d;
  if (precision >= 0)  // the C library rounds the exact decimal value, halves to even
    return std::strtod(fmt::format("{:.{}f}", d, precision).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(d / unit) * unit;
}

Value round_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("round", args, {"precision", "method"});
  const std::int64_t precision = bound.integer(0, 0);
  const std::string method = bound.has(1) ? bound.string(1).text() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    throw TemplateError("method must be common, ceil or floor");
  require_defined(v);
  const auto d = v.to_double();
  if (!d)
    throw TemplateError("type " + std::string(type_name(v)) + " doesn't define __round__ method");
  if (method != "common") {
    const Value unit =
        arithmetic(ctx, Arithmetic::kPow, Value::integer(10), Value::integer(precision));
    const double scaled = *arithmetic(ctx, Arithmetic::kMul, v, unit).to_double();
    const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
    return Value::real(whole / *unit.to_double());
  }
  if (const auto i = v.to_integer())
    return precision >= 0 ? Value::integer(*i) : round_integer(*i, -precision);
  return Value::real(round_double(*d, precision));
}

Value tojson(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = bound.truth(0, false);
  options.sort_keys = bound.truth(3, false);
  if (!bound.none_or_absent(1)) {
    if (bound.at(1).is_string()) {
      options.indent = bound.at(1).as_string();
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, bound.integer(1, 0));
      ctx.charge_bytes(static_cast<double>(width));
      options.indent = Str(std::string(static_cast<std::size_t>(width), ' '));
    }
    options.item_separator = Str(",");
  }
  if (!bound.none_or_absent(2)) {
    const ListRef both = iterate(ctx, bound.at(2));
    if (both->size() != 2 || !both->items()[0].is_string() || !both->items()[1].is_string())
      throw TemplateError("tojson() separators must be two strings");
    options.item_separator = both->items()[0].as_string();
    options.key_separator = both->items()[1].as_string();
  }
  return Value::string(to_json(ctx, v, options));
}

Value attr(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("attr", args, {"name"}, 1);
  require_defined(v);
  const std::string& name = bound.string(0).text();
  if (auto found = find_attribute(ctx, v, name)) return std::move(*found);
  return Value::undefined("'" + std::string(type_name(v)) + " object' has no attribute '" + name +
                          "'");
}

Value filesizeformat(Context&, const Value& v, const Arguments& args) {
  const Bound bound("filesizeformat", args, {"binary"});
  require_defined(v);
  const auto size = v.is_string() ? parse_double(v.as_string()) : v.to_double();
  if (!size) throw TemplateError("could not convert to float: a " + std::string(type_name(v)));
  const bool binary = bound.truth(0, false);
  const double base = binary ? 1024 : 1000;
  if (*size == 1) return Value::string("1 Byte");
  if (*size < base) return Value::string(fmt::format("{:.0f} Bytes", std::trunc(*size)));
  constexpr std::string_view kUnits = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < kUnits.size() && *size >= unit * base) {
    unit *= base;
    ++i;
  }
  const char letter = binary && i == 0 ? 'K' : kUnits[i];
  return Value::string(fmt::format("{:.1f} {}{}", *size / unit, letter, binary ? "iB" : "B"));
}

constexpr MethodEntry kFilters[] = {
    {"abs", abs_filter},
    {"attr", attr},
    {"d", default_filter},
    {"default", default_filter},
    {"filesizeformat", filesizeformat},
    {"float", float_filter},
    {"int", int_filter},
    {"round", round_filter},
    {"tojson", tojson},
};

}  // namespace

std::span<const MethodEntry> scalar_filters() { return kFilters; }

}  // namespace minisgl::jinja
