#include "tokenizer/jinja_repr.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

std::string escape_code(std::uint32_t code) {
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  return fmt::format("\\U{:08x}", code);
}

void append_list(Context& ctx, const List& list, StrBuilder& out) {
  out.append(list.is_tuple() ? "(" : "[");
  bool first = true;
  for (const Value& item : list.items()) {
    if (!first) out.append(", ");
    first = false;
    append_repr(ctx, item, out);
  }
  if (list.is_tuple()) {
    out.append(list.size() == 1 ? ",)" : ")");
  } else {
    out.append("]");
  }
}

void append_dict(Context& ctx, const Dict& dict, StrBuilder& out) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    append_repr(ctx, key, out);
    out.append(": ");
    append_repr(ctx, value, out);
  }
  out.append("}");
}

class JsonWriter {
 public:
  JsonWriter(Context& ctx, const JsonOptions& options) : ctx_(ctx), options_(options) {}

  void write(const Value& v, int level) {
    ctx_.charge(1);
    ctx_.check_bytes(out_.size());
    switch (v.kind()) {
      case Kind::kNone: return out_.append("null");
      case Kind::kBool: return out_.append(v.as_bool() ? "true" : "false");
      case Kind::kInt: return out_.append(repr_int(v.as_int()));
      case Kind::kDouble: return out_.append(number(v.as_double()));
      case Kind::kString: return write_string(v.as_string());
      case Kind::kList: return write_list(v.as_list(), level);
      case Kind::kDict: return write_dict(v.as_dict(), level);
      default:
        throw TemplateError("Object of type " + std::string(type_name(v)) +
                            " is not JSON serializable");
    }
  }

  Str result() { return out_.build(); }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return repr_double(d);
  }

  void write_string(const Str& s) {
    ctx_.charge_bytes(static_cast<double>(s.size()));
    out_.append("\"");
    MarkCursor marks(s);
    std::size_t done = 0;  // bytes copied; runs without an escape are copied at once
    for_each_char(s.text(), [&](const Char& c) {
      const bool plain = c.code >= 0x20 && c.code != '"' && c.code != '\\' &&
                         (!options_.ensure_ascii || c.code < 0x7F);
      if (plain) return;
      out_.append(s, done, c.begin);
      out_.append(escaped(c.code), marks.at(c.begin));
      done = c.end;
    });
    out_.append(s, done, s.size());
    out_.append("\"");
  }

  static std::string escaped(std::uint32_t code) {
    switch (code) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\b': return "\\b";
      case '\f': return "\\f";
      default: break;
    }
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    code -= 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
  }

  void write_list(const List& list, int level) {
    if (list.size() == 0) return out_.append("[]");
    out_.append("[");
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_.append(options_.item_separator);
      new_line(level + 1);
      write(list.items()[i], level + 1);
    }
    new_line(level);
    out_.append("]");
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.size() == 0) return out_.append("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (options_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    out_.append("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(options_.item_separator);
      new_line(level + 1);
      write_key(entries[i]->first);
      out_.append(options_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    out_.append("}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.as_string());
    if (key.is(Kind::kList) || key.is(Kind::kObject) || key.is_undefined())
      throw TemplateError("keys must be str, int, float, bool or None, not " +
                          std::string(type_name(key)));
    out_.append("\"");
    write(key, 0);
    out_.append("\"");
  }

  void new_line(int level) {
    if (!options_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level; ++i) out_.append(*options_.indent);
  }

  Context& ctx_;
  const JsonOptions& options_;
  StrBuilder out_;
};

}  // namespace

std::string repr_double(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  if (d == 0) return std::signbit(d) ? "-0.0" : "0.0";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(text.substr(0, e));
  const bool negative = digits[0] == '-';
  std::erase_if(digits, [](char c) { return c == '.' || c == '-'; });
  const int count = static_cast<int>(digits.size());
  std::string out;
  if (exponent < -4 || exponent >= 16) {  // where Python's repr() changes form
    out = digits.substr(0, 1) + (count > 1 ? "." + digits.substr(1) : "");
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else if (count <= exponent + 1) {
    out = digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    const auto point = static_cast<std::size_t>(exponent + 1);
    out = digits.substr(0, point) + "." + digits.substr(point);
  }
  return negative ? "-" + out : out;
}

std::string repr_int(Int i, unsigned base) {
  __extension__ typedef unsigned __int128 Unsigned;
  Unsigned rest = i < 0 ? -static_cast<Unsigned>(i) : static_cast<Unsigned>(i);
  std::string out;
  do {
    out.push_back("0123456789abcdef"[static_cast<std::size_t>(rest % base)]);
    rest /= base;
  } while (rest != 0);
  if (i < 0) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

void append_repr(const Str& s, StrBuilder& out) {
  const bool single = s.text().find('\'') != std::string::npos;
  const bool both = single && s.text().find('"') != std::string::npos;
  const char quote = single && !both ? '"' : '\'';
  const std::string_view quote_text = quote == '"' ? "\"" : "'";
  if (s.safe()) out.append("Markup(");
  out.append(quote_text);
  MarkCursor marks(s);
  std::size_t done = 0;
  for_each_char(s.text(), [&](const Char& c) {
    std::string escaped;
    if (c.code == '\n') {
      escaped = "\\n";
    } else if (c.code == '\r') {
      escaped = "\\r";
    } else if (c.code == '\t') {
      escaped = "\\t";
    } else if (c.code == '\\' || c.code == static_cast<std::uint32_t>(quote)) {
      escaped = std::string("\\") + static_cast<char>(c.code);
    } else if (!is_printable(c.code)) {
      escaped = escape_code(c.code);
    } else {
      return;
    }
    out.append(s, done, c.begin);
    out.append(escaped, marks.at(c.begin));
    done = c.end;
  });
  out.append(s, done, s.size());
  out.append(quote_text);
  if (s.safe()) out.append(")");
}

void append_repr(Context& ctx, const Value& v, StrBuilder& out) {
  const Context::Nesting nesting(ctx);
  ctx.charge(1);
  switch (v.kind()) {
    case Kind::kUndefined: return out.append("Undefined");
    case Kind::kString:
      ctx.check_bytes(out.size());
      ctx.charge_bytes(static_cast<double>(v.as_string().size()));
      return append_repr(v.as_string(), out);
    case Kind::kList: return append_list(ctx, v.as_list(), out);
    case Kind::kDict: return append_dict(ctx, v.as_dict(), out);
    default: return append_str(ctx, v, out);
  }
}

void append_str(Context& ctx, const Value& v, StrBuilder& out) {
  switch (v.kind()) {
    case Kind::kNone: return out.append("None");
    case Kind::kUndefined: return;
    case Kind::kBool: return out.append(v.as_bool() ? "True" : "False");
    case Kind::kInt: return out.append(repr_int(v.as_int()));
    case Kind::kDouble: return out.append(repr_double(v.as_double()));
    case Kind::kString: return out.append(v.as_string());
    case Kind::kObject: return v.as_object()->repr(ctx, out);
    default: return append_repr(ctx, v, out);
  }
}

Str to_str(Context& ctx, const Value& v) {
  if (v.is_string()) return v.as_string();
  StrBuilder out;
  append_str(ctx, v, out);
  return out.build();
}

std::string repr_text(Context& ctx, const Value& v) {
  StrBuilder out;
  append_repr(ctx, v, out);
  return out.text();
}

Str to_json(Context& ctx, const Value& v, const JsonOptions& options) {
  JsonWriter writer(ctx, options);
  writer.write(v, 0);
  return writer.result();
}

}  // namespace minisgl::jinja
