#include "tokenizer/jinja_format.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

// Wider fields and longer fractions are refused: no honest template has them.
constexpr std::int64_t kMaxField = 100'000;
constexpr int kMaxPrecision = 400;

// One conversion of a % format.
struct Conversion {
  bool left = false, sign = false, blank = false, zero = false, alternate = false;
  std::int64_t width = 0;
  int precision = -1;
  char type = 0;
};

Str fill_field(const Str& text, std::int64_t width, bool left) {
  const auto missing = std::max<std::int64_t>(0, width - static_cast<std::int64_t>(text.length()));
  const auto n = static_cast<std::size_t>(missing);
  return left ? padded(text, 0, n, Str(" ")) : padded(text, n, 0, Str(" "));
}

class PercentFormatter {
 public:
  PercentFormatter(Context& ctx, const Str& format, const Value& args)
      : ctx_(ctx), format_(format), text_(format.text()), args_(args) {}

  Str run() {
    std::size_t done = 0;
    while ((at_ = text_.find('%', done)) != std::string::npos) {
      out_.append(format_, done, at_);
      ++at_;
      convert();
      done = at_;
    }
    out_.append(format_, done, text_.size());
    // What could be a mapping need not be used: Python counts all but strings that have items.
    const bool tuple = args_.is(Kind::kList) && args_.as_list().is_tuple();
    const bool mapping = args_.is(Kind::kDict) || args_.is(Kind::kList) || args_.is_undefined();
    if (tuple ? used_ < args_.as_list().size() : used_ == 0 && !mapping)
      throw TemplateError("not all arguments converted during string formatting");
    return out_.build(format_.safe());
  }

 private:
  char peek() const {
    if (at_ >= text_.size()) throw TemplateError("incomplete format");
    return text_[at_];
  }

  const Value& next_argument() {
    if (args_.is(Kind::kList) && args_.as_list().is_tuple()) {
      if (used_ >= args_.as_list().size())
        throw TemplateError("not enough arguments for format string");
      return args_.as_list().items()[used_++];
    }
    if (used_++ > 0) throw TemplateError("not enough arguments for format string");
    return args_;
  }

  std::int64_t number() {
    if (peek() == '*') {
      ++at_;
      return to_index(next_argument());
    }
    std::int64_t n = 0;
    for (; std::isdigit(static_cast<unsigned char>(peek())) != 0; ++at_)
      n = std::min<std::int64_t>(n * 10 + (text_[at_] - '0'), kMaxField + 1);
    return n;
  }

  Conversion parse() {
    Conversion c;
    for (bool flags = true; flags;) {
      switch (peek()) {
        case '-': c.left = true; break;
        case '+': c.sign = true; break;
        case ' ': c.blank = true; break;
        case '0': c.zero = true; break;
        case '#': c.alternate = true; break;
        default: flags = false;
      }
      if (flags) ++at_;
    }
    c.width = number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (peek() == '.') {
      ++at_;
      c.precision = static_cast<int>(std::clamp<std::int64_t>(number(), 0, kMaxField + 1));
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    c.type = peek();
    ++at_;
    if (c.width > kMaxField) throw TemplateError("width of a format is too large");
    return c;
  }

  void convert() {
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t close = text_.find(')', at_);
      if (close == std::string::npos) throw TemplateError("incomplete format key");
      if (!args_.is(Kind::kDict)) throw TemplateError("format requires a mapping");
      const std::string key = text_.substr(at_ + 1, close - at_ - 1);
      const Value* found = args_.as_dict().find(key);
      if (found == nullptr) throw TemplateError("'" + key + "'");
      named = *found;
      at_ = close + 1;
    }
    const Conversion c = parse();
    if (c.type == '%') return out_.append("%");
    const Value value = named ? *named : next_argument();
    out_.append(fill_field(convert_value(c, value), c.width, c.left));
  }

  Str convert_value(const Conversion& c, const Value& value) {
    switch (c.type) {
      case 's':
      case 'r':
      case 'a': {
        StrBuilder text;
        c.type == 's' ? append_str(ctx_, value, text) : append_repr(ctx_, value, text);
        const Str whole = text.build();
        if (c.precision < 0) return escaped(whole);
        return escaped(whole.slice(0, whole.offset_of(static_cast<std::size_t>(c.precision))));
      }
      case 'c': {
        if (value.is_string() && value.as_string().length() == 1) return value.as_string();
        return Str(encode_utf8(static_cast<std::uint32_t>(to_index(value))));
      }
      default: return Str(convert_number(c, value));
    }
  }

  // Values put into Markup are escaped.
  Str escaped(const Str& s) const { return format_.safe() ? escape_html(s) : s; }

  std::string convert_number(const Conversion& c, const Value& value) {
    std::string digits;
    bool negative = false;
    std::string prefix;
    if (std::string_view("diuxXo").find(c.type) != std::string_view::npos) {
      const Int i = integer_for(c, value);
      const unsigned base = c.type == 'x' || c.type == 'X' ? 16 : c.type == 'o' ? 8 : 10;
      digits = repr_int(i, base);
      negative = digits[0] == '-';
      if (negative) digits.erase(0, 1);
      if (c.precision > static_cast<int>(digits.size()))
        digits.insert(0, static_cast<std::size_t>(c.precision) - digits.size(), '0');
      if (c.alternate && base == 16) prefix = "0x";
      if (c.alternate && base == 8) prefix = "0o";
      if (c.type == 'X') upper_ascii(digits), upper_ascii(prefix);
    } else if (std::string_view("eEfFgG").find(c.type) != std::string_view::npos) {
      const auto d = value.to_double();
      if (!d) throw TemplateError("must be real number, not " + std::string(type_name(value)));
      negative = std::signbit(*d);
      digits = format_double(std::abs(*d), c.type, c.precision < 0 ? 6 : c.precision, c.alternate);
    } else {
      throw TemplateError(std::string("unsupported format character '") + c.type + "'");
    }
    prefix.insert(0, negative ? "-" : c.sign ? "+" : c.blank ? " " : "");
    const auto width = static_cast<std::size_t>(c.width);
    if (c.zero && !c.left && prefix.size() + digits.size() < width)
      digits.insert(0, width - prefix.size() - digits.size(), '0');
    return prefix + digits;
  }

  static Int integer_for(const Conversion& c, const Value& value) {
    if (const auto i = value.to_integer()) return *i;
    const bool decimal = c.type == 'd' || c.type == 'i' || c.type == 'u';
    if (decimal && value.is(Kind::kDouble) && std::abs(value.as_double()) < 1e38)
      return static_cast<Int>(value.as_double());
    require_defined(value);
    throw TemplateError(std::string("%") + c.type +
                        " format: " + (decimal ? "a real number" : "an integer") +
                        " is required, not " + std::string(type_name(value)));
  }

  static void upper_ascii(std::string& s) {
    for (char& ch : s) ch = static_cast<char>(std::toupper(static_cast<unsigned char>(ch)));
  }

  Context& ctx_;
  const Str& format_;
  const std::string& text_;
  const Value& args_;
  StrBuilder out_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

Str format_percent(Context& ctx, const Str& format, const Value& args) {
  ctx.charge_bytes(static_cast<double>(format.size()));
  return PercentFormatter(ctx, format, args).run();
}

std::string format_double(double d, char type, int precision, bool alternate) {
  if (precision > kMaxPrecision) throw TemplateError("precision of a format is too large");
  const bool upper = std::isupper(static_cast<unsigned char>(type)) != 0;
  if (std::isinf(d)) return std::string(d < 0 ? "-" : "") + (upper ? "INF" : "inf");
  if (std::isnan(d)) return upper ? "NAN" : "nan";
  const char pattern[] = {'%',
                          alternate ? '#' : '.',
                          alternate ? '.' : '*',
                          alternate ? '*' : type,
                          alternate ? type : '\0',
                          '\0'};
  char buffer[1024];  // 309 digits before the point and kMaxPrecision after it
  const int n = std::snprintf(buffer, sizeof buffer, pattern, precision, d);
  return std::string(buffer, static_cast<std::size_t>(n));
}

}  // namespace minisgl::jinja
