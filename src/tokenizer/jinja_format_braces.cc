// str.format() and the mini-language of its specifications (declared in jinja_format.h).
// Facts: Python 3.11 library reference, "Format String Syntax".

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

constexpr std::size_t kMaxField = 100'000;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  std::size_t width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};

std::size_t read_number(std::string_view text, std::size_t& at) {
  std::size_t n = 0;
  for (; at < text.size() && is_digit(text[at]); ++at)
    n = n * 10 + static_cast<std::size_t>(text[at] - '0');
  if (n > kMaxField) throw TemplateError("width or precision of a format is too large");
  return n;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  if (!text.empty()) {
    const Char first = char_at(text, 0);
    if (first.end < text.size() && is_align(text[first.end])) {
      spec.fill = std::string(text.substr(0, first.end));
      spec.align = text[first.end];
      at = first.end + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '#') spec.alternate = true, ++at;
  if (peek() == '0') spec.zero = true, ++at;
  spec.width = read_number(text, at);
  if (peek() == ',' || peek() == '_') spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    if (!is_digit(peek())) throw TemplateError("Format specifier missing precision");
    spec.precision = static_cast<int>(read_number(text, at));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw TemplateError("Invalid format specifier");
  return spec;
}

[[noreturn]] void fail_type(const Spec& spec, const Value& value) {
  throw TemplateError(std::string("Unknown format code '") + spec.type + "' for object of type '" +
                      std::string(type_name(value)) + "'");
}

// Separators between groups of digits, counted from the end of the whole part.
std::string grouped(const std::string& digits, char separator, std::size_t group) {
  std::size_t whole = 0;
  while (whole < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[whole])) != 0 &&
         !(group == 3 && std::isalpha(static_cast<unsigned char>(digits[whole])) != 0))
    ++whole;
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

std::string integer_digits(const Spec& spec, Int i, std::string& prefix) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  std::string digits = repr_int(i, base);
  if (digits[0] == '-') digits.erase(0, 1);
  if (type == 'X')
    for (char& c : digits) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (spec.alternate && base != 10) prefix = std::string("0") + type;
  return spec.grouping != 0 ? grouped(digits, spec.grouping, base == 10 ? 3 : 4) : digits;
}

std::string double_digits(const Spec& spec, double d) {
  std::string digits;
  if (spec.type == '%') {
    digits = format_double(d * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    digits += "%";
  } else if (spec.type == 0 && spec.precision < 0) {
    digits = repr_double(d);
  } else if (spec.type == 0) {
    // As 'g', but a whole number keeps one digit after the point.
    digits = format_double(d, 'g', std::max(1, spec.precision), spec.alternate);
    if (digits.find_first_of(".en") == std::string::npos &&
        static_cast<int>(digits.size()) < spec.precision)
      digits += ".0";
  } else {
    const char type = spec.type == 'n' ? 'g' : spec.type;
    digits = format_double(d, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  }
  return spec.grouping != 0 ? grouped(digits, spec.grouping, 3) : digits;
}

Str aligned(const Spec& spec, char align, const Str& text) {
  if (text.length() >= spec.width) return text;
  const std::size_t missing = spec.width - text.length();
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return padded(text, left, missing - left, Str(spec.fill));
}

Str format_number(const Spec& spec, const Value& value) {
  std::string prefix;
  std::string digits;
  bool negative = false;
  const auto integer = value.to_integer();
  if (integer && std::string_view("bdoxXn\0", 7).find(spec.type) != std::string_view::npos) {
    if (spec.precision >= 0)
      throw TemplateError("Precision not allowed in integer format specifier");
    negative = *integer < 0;
    digits = integer_digits(spec, *integer, prefix);
  } else if (std::string_view("eEfFgGn%\0", 9).find(spec.type) != std::string_view::npos) {
    const double d = *value.to_double();
    negative = std::signbit(d);
    digits = double_digits(spec, std::abs(d));
  } else if (integer && spec.type == 'c') {
    digits = encode_utf8(static_cast<std::uint32_t>(*integer));
  } else {
    fail_type(spec, value);
  }
  prefix.insert(0, negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign));
  const bool zeros = spec.align == 0 && spec.zero;
  if ((spec.align == '=' || zeros) && prefix.size() + digits.size() < spec.width) {
    const std::size_t missing = spec.width - prefix.size() - digits.size();
    for (std::size_t i = 0; i < missing; ++i) digits.insert(0, zeros ? "0" : spec.fill);
  }
  return aligned(spec, spec.align == 0 || spec.align == '=' ? '>' : spec.align,
                 Str(prefix + digits));
}

class BraceFormatter {
 public:
  BraceFormatter(Context& ctx, const Arguments& args) : ctx_(ctx), args_(args) {}

  Str run(const Str& format, int level) {
    if (level > 2) throw TemplateError("Max string recursion exceeded");
    const std::string& text = format.text();
    StrBuilder out;
    std::size_t done = 0;
    for (std::size_t i = 0; (i = text.find_first_of("{}", i)) != std::string::npos;) {
      const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
      out.append(format, done, i + (doubled ? 1 : 0));
      if (doubled) {
        i += 2;
      } else if (text[i] == '}' || i + 1 == text.size()) {
        throw TemplateError(std::string("Single '") + text[i] + "' encountered in format string");
      } else {
        const std::size_t close = closing(text, i);
        const Str field = replacement(text.substr(i + 1, close - i - 1), level);
        ctx_.check_bytes(out.size() + field.size());
        out.append(format.safe() ? escape_html(field) : field);
        i = close + 1;
      }
      done = i;
    }
    out.append(format, done, text.size());
    return out.build(format.safe());
  }

 private:
  static std::size_t closing(const std::string& text, std::size_t open) {
    int level = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
      if (text[i] == '{') ++level;
      if (text[i] == '}' && --level == 0) return i;
    }
    throw TemplateError("expected '}' before end of string");
  }

  Str replacement(const std::string& field, int level) {
    ctx_.charge(1);
    const std::size_t end = field.find_first_of("!:");
    const std::string name = field.substr(0, end);
    Value value = lookup(name);
    std::size_t at = end;
    if (at != std::string::npos && field[at] == '!') {
      const char conversion = at + 1 < field.size() ? field[at + 1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a')
        throw TemplateError("Unknown conversion specifier in format string");
      StrBuilder text;
      conversion == 's' ? append_str(ctx_, value, text) : append_repr(ctx_, value, text);
      value = Value::string(text.build());
      at = at + 2 < field.size() ? at + 2 : std::string::npos;
    }
    if (at == std::string::npos) return to_str(ctx_, value);
    if (field[at] != ':') throw TemplateError("expected ':' after conversion specifier");
    return format_value(ctx_, value, run(Str(field.substr(at + 1)), level + 1).text());
  }

  Value lookup(const std::string& name) {
    std::size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, at));
    while (at < name.size()) {
      if (name[at] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        value = get_attribute(ctx_, value, name.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const std::size_t end = name.find(']', at);
        if (end == std::string::npos) throw TemplateError("Missing ']' in format string");
        const std::string key = name.substr(at + 1, end - at - 1);
        const bool number =
            !key.empty() && key.size() < 18 && std::all_of(key.begin(), key.end(), is_digit);
        value =
            get_item(ctx_, value, number ? Value::integer(std::stoll(key)) : Value::string(key));
        at = end + 1;
      }
    }
    return value;
  }

  Value argument(const std::string& name) {
    std::size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else if (std::all_of(name.begin(), name.end(), is_digit)) {
      std::size_t at = 0;
      index = read_number(name, at);
    } else {
      for (const auto& [key, value] : args_.keywords) {
        if (key == name) return value;
      }
      throw TemplateError("'" + name + "'");
    }
    if (index >= args_.positional.size())
      throw TemplateError("Replacement index " + std::to_string(index) +
                          " out of range for positional args tuple");
    return args_.positional[index];
  }

  Context& ctx_;
  const Arguments& args_;
  std::size_t next_ = 0;
};

}  // namespace

Str format_value(Context& ctx, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(ctx, value);
  const Spec spec = parse_spec(text);
  ctx.charge_bytes(static_cast<double>(spec.width));
  if (value.to_double()) return format_number(spec, value);
  if (!value.is_string())
    throw TemplateError("unsupported format string passed to " + std::string(type_name(value)) +
                        ".__format__");
  if (spec.type != 0 && spec.type != 's') fail_type(spec, value);
  Str s = value.as_string();
  if (spec.precision >= 0) s = s.slice(0, s.offset_of(static_cast<std::size_t>(spec.precision)));
  return aligned(spec, spec.align == 0 ? '<' : spec.align, s);
}

Str format_braces(Context& ctx, const Str& format, const Arguments& args) {
  ctx.charge_bytes(static_cast<double>(format.size()));
  return BraceFormatter(ctx, args).run(format, 0);
}

}  // namespace minisgl::jinja
