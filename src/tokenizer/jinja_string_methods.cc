#include "tokenizer/jinja_string_methods.h"

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_ops.h"

namespace minisgl::jinja {
namespace {

void charge_for(Context& ctx, const Str& s) { ctx.charge_bytes(static_cast<double>(s.size())); }

void charge_search(Context& ctx, const Str& s, const Str& wanted) {
  charge_for(ctx, s);
  ctx.charge_search(s.size(), wanted.size());
}

// A method without arguments that maps text to text.
template <Str (*kFunction)(const Str&)>
Value mapped(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("str method", args, {});
  charge_for(ctx, self.as_string());
  return Value::string(kFunction(self.as_string()));
}

template <Side kSide>
Value stripped(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("strip", args, {"chars"});
  charge_for(ctx, self.as_string());
  std::optional<std::string_view> chars;
  if (!bound.none_or_absent(0)) chars = bound.string(0).text();
  return Value::string(strip(self.as_string(), kSide, chars));
}

Value to_list(std::vector<Str> pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (Str& piece : pieces) items.push_back(Value::string(std::move(piece)));
  return Value::list(std::move(items));
}

// Counts the pieces that a text is about to be split into: each takes far more memory than the byte
// that ends it.
void charge_blanks(Context& ctx, const Str& s) {
  std::int64_t blanks = 0;
  for_each_char(s.text(), [&](const Char& c) { blanks += is_space(c.code) ? 1 : 0; });
  ctx.charge(blanks);
}

void charge_separators(Context& ctx, const Str& s, const std::string& separator) {
  std::int64_t count = 0;
  for (std::size_t i = 0; (i = s.text().find(separator, i)) != std::string::npos;
       i += separator.size())
    ++count;
  ctx.charge(count);
}

template <bool kFromRight>
Value split_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("split", args, {"sep", "maxsplit"});
  const Str& s = self.as_string();
  charge_for(ctx, s);
  const std::int64_t limit = bound.integer(1, -1);
  std::vector<Str> pieces;
  if (bound.none_or_absent(0)) {
    charge_blanks(ctx, s);
    pieces = split_blanks(s, limit, kFromRight);
  } else {
    const std::string& separator = bound.string(0).text();
    if (separator.empty()) throw TemplateError("empty separator");
    charge_search(ctx, s, bound.string(0));
    charge_separators(ctx, s, separator);
    pieces = split(s, separator, limit, kFromRight);
  }
  return to_list(std::move(pieces));
}

Value splitlines_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("splitlines", args, {"keepends"});
  charge_for(ctx, self.as_string());
  charge_blanks(ctx, self.as_string());  // line ends are blanks
  return to_list(split_lines(self.as_string(), bound.truth(0, false)));
}

template <bool kFromRight>
Value partition_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("partition", args, {"sep"}, 1);
  const Str& s = self.as_string();
  const Str& separator = bound.string(0);
  if (separator.empty()) throw TemplateError("empty separator");
  charge_search(ctx, s, separator);
  const std::size_t at =
      kFromRight ? s.text().rfind(separator.text()) : s.text().find(separator.text());
  const Value empty = Value::string("");
  if (at == std::string::npos)
    return kFromRight ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  const std::size_t end = at + separator.size();
  return Value::tuple({Value::string(s.slice(0, at)), Value::string(s.slice(at, end)),
                       Value::string(s.slice(end, s.size()))});
}

// The part of `self` that the optional bounds at arguments 1 and 2 leave, in bytes.
Span searched(const Str& s, const Bound& bound) {
  const auto n = static_cast<std::int64_t>(s.length());
  const std::int64_t start = bound.integer(1, 0);
  if (start > n) return {s.size() + 1, s.size()};  // not even the empty string is found
  const SliceRange range = clip_slice(start, bound.integer(2, n), 1, n);
  const auto begin = static_cast<std::size_t>(range.start);
  return {s.offset_of(begin), s.offset_of(begin + static_cast<std::size_t>(range.count))};
}

template <bool kAtEnd>
Value has_affix(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound(kAtEnd ? "endswith" : "startswith", args, {"affix", "start", "end"}, 1);
  const Str& s = self.as_string();
  const Span span = searched(s, bound);
  if (span.begin > s.size()) return Value::boolean(false);
  const std::string_view text =
      std::string_view(s.text()).substr(span.begin, span.end - span.begin);
  const auto matches = [&](const Value& affix) {
    require_defined(affix);
    if (!affix.is_string())
      throw TemplateError(std::string(kAtEnd ? "endswith" : "startswith") +
                          " first arg must be str or a tuple of str, not " +
                          std::string(type_name(affix)));
    const std::string& a = affix.as_string().text();
    return kAtEnd ? text.ends_with(a) : text.starts_with(a);
  };
  const Value& affix = bound.at(0);
  if (!affix.is(Kind::kList) || !affix.as_list().is_tuple()) return Value::boolean(matches(affix));
  const std::vector<Value>& all = affix.as_list().items();
  ctx.charge(static_cast<std::int64_t>(all.size()));
  return Value::boolean(std::any_of(all.begin(), all.end(), matches));
}

template <bool kAtEnd>
Value remove_affix(Context&, const Value& self, const Arguments& args) {
  const Bound bound("removeprefix", args, {"affix"}, 1);
  const Str& s = self.as_string();
  const std::string& affix = bound.string(0).text();
  const bool there = kAtEnd ? s.text().ends_with(affix) : s.text().starts_with(affix);
  if (!there || affix.empty()) return self;
  return Value::string(kAtEnd ? s.slice(0, s.size() - affix.size())
                              : s.slice(affix.size(), s.size()));
}

// Index in characters, or -1.
template <bool kFromRight>
std::int64_t position(Context& ctx, const Value& self, const Bound& bound) {
  const Str& s = self.as_string();
  charge_search(ctx, s, bound.string(0));
  const std::string& wanted = bound.string(0).text();
  const Span span = searched(s, bound);
  if (span.begin > s.size()) return -1;
  const std::string_view text =
      std::string_view(s.text()).substr(span.begin, span.end - span.begin);
  const std::size_t at = kFromRight ? text.rfind(wanted) : text.find(wanted);
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(s.index_of(span.begin + at));
}

template <bool kFromRight>
Value find_method_of_str(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("find", args, {"sub", "start", "end"}, 1);
  return Value::integer(position<kFromRight>(ctx, self, bound));
}

template <bool kFromRight>
Value index_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("index", args, {"sub", "start", "end"}, 1);
  const std::int64_t at = position<kFromRight>(ctx, self, bound);
  if (at < 0) throw TemplateError("substring not found");
  return Value::integer(at);
}

Value count_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("count", args, {"sub", "start", "end"}, 1);
  const Str& s = self.as_string();
  charge_search(ctx, s, bound.string(0));
  const std::string& wanted = bound.string(0).text();
  const Span span = searched(s, bound);
  if (span.begin > s.size()) return Value::integer(0);
  const std::string_view text =
      std::string_view(s.text()).substr(span.begin, span.end - span.begin);
  if (wanted.empty()) return Value::integer(static_cast<Int>(count_code_points(text)) + 1);
  Int n = 0;
  for (std::size_t i = 0; (i = text.find(wanted, i)) != std::string_view::npos; i += wanted.size())
    ++n;
  return Value::integer(n);
}

Value replace_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  return Value::string(replace_charged(ctx, self.as_string(), bound.string(0), bound.string(1),
                                       bound.integer(2, -1)));
}

Value join_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("join", args, {"iterable"}, 1);
  const ListRef items = iterate(ctx, bound.at(0));
  std::vector<Str> pieces;
  for (const Value& item : items->items()) {
    require_defined(item);
    if (!item.is_string())
      throw TemplateError("sequence item " + std::to_string(pieces.size()) +
                          ": expected str instance, " + std::string(type_name(item)) + " found");
    ctx.charge_bytes(static_cast<double>(item.as_string().size() + self.as_string().size()));
    pieces.push_back(self.as_string().safe() ? escape_html(item.as_string()) : item.as_string());
  }
  return Value::string(join(self.as_string(), pieces));
}

enum class Justify { kLeft, kRight, kCenter };

template <Justify kJustify>
Value justify_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("justify", args, {"width", "fillchar"}, 1);
  const Str fill = bound.has(1) ? bound.string(1) : Str(" ");
  if (fill.length() != 1)
    throw TemplateError("The fill character must be exactly one character long");
  const Str& s = self.as_string();
  const std::int64_t width = bound.integer(0, 0);
  ctx.charge_bytes(static_cast<double>(width) * static_cast<double>(fill.size()));
  if (kJustify == Justify::kCenter) return Value::string(center(s, width, fill));
  const std::int64_t missing = width - static_cast<std::int64_t>(s.length());
  if (missing <= 0) return self;
  const auto n = static_cast<std::size_t>(missing);
  return Value::string(kJustify == Justify::kLeft ? padded(s, 0, n, fill) : padded(s, n, 0, fill));
}

Value zfill_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("zfill", args, {"width"}, 1);
  const Str& s = self.as_string();
  const std::int64_t width = bound.integer(0, 0);
  ctx.charge_bytes(static_cast<double>(width));
  const std::int64_t missing = width - static_cast<std::int64_t>(s.length());
  if (missing <= 0) return self;
  const std::size_t sign = s.text().starts_with('-') || s.text().starts_with('+') ? 1 : 0;
  StrBuilder out;
  out.append(s, 0, sign);
  out.pad(static_cast<std::size_t>(missing), '0');
  out.append(s, sign, s.size());
  return Value::string(out.build(s.safe()));
}

Value expandtabs_method(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("expandtabs", args, {"tabsize"});
  const std::int64_t size = bound.integer(0, 8);
  ctx.charge_bytes(static_cast<double>(self.as_string().size()) *
                   static_cast<double>(std::max<std::int64_t>(1, size)));
  return Value::string(expand_tabs(self.as_string(), size));
}

Value format_method(Context& ctx, const Value& self, const Arguments& args) {
  return Value::string(format_braces(ctx, self.as_string(), args));
}

Value encode_method(Context&, const Value& self, const Arguments& args) {
  const Bound bound("encode", args, {"encoding", "errors"});
  if (bound.has(0)) {
    const std::string name = lower(bound.string(0)).text();
    if (name != "utf-8" && name != "utf8")
      throw TemplateError("unknown encoding: " + name + " (only utf-8 is supported)");
  }
  return Value::object(std::make_shared<Bytes>(self.as_string().text()));
}

// Every character has the property, and there is one.
template <bool (*kProperty)(std::uint32_t)>
Value all_chars(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("str method", args, {});
  charge_for(ctx, self.as_string());
  bool all = !self.as_string().empty();
  for_each_char(self.as_string().text(), [&](const Char& c) { all = all && kProperty(c.code); });
  return Value::boolean(all);
}

bool is_alnum(std::uint32_t c) { return is_letter(c) || is_numeric(c); }
bool is_digit(std::uint32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9;  // superscripts are digits too
}

template <bool (*kProperty)(const Str&)>
Value has_property(Context& ctx, const Value& self, const Arguments& args) {
  const Bound bound("str method", args, {});
  charge_for(ctx, self.as_string());
  return Value::boolean(kProperty(self.as_string()));
}

Value isascii_method(Context&, const Value& self, const Arguments&) {
  const Str& s = self.as_string();
  return Value::boolean(std::all_of(s.text().begin(), s.text().end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

bool is_identifier(const Str& s) {
  bool all = !s.empty();
  for_each_char(s.text(), [&](const Char& c) {
    all = all && is_word(c.code) && (c.begin > 0 || c.code == '_' || is_letter(c.code));
  });
  return all;
}

bool is_titled(const Str& s) {
  bool cased = false;
  for_each_char(s.text(), [&](const Char& c) { cased = cased || is_upper(c.code); });
  return cased && title(s).text() == s.text();
}

constexpr MethodEntry kMethods[] = {
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<casefold>},
    {"center", justify_method<Justify::kCenter>},
    {"count", count_method},
    {"encode", encode_method},
    {"endswith", has_affix<true>},
    {"expandtabs", expandtabs_method},
    {"find", find_method_of_str<false>},
    {"format", format_method},
    {"index", index_method<false>},
    {"isalnum", all_chars<is_alnum>},
    {"isalpha", all_chars<is_letter>},
    {"isascii", isascii_method},
    {"isdecimal", all_chars<is_decimal>},
    {"isdigit", all_chars<is_digit>},
    {"isidentifier", has_property<is_identifier>},
    {"islower", has_property<is_all_lower>},
    {"isnumeric", all_chars<is_numeric>},
    {"isprintable", all_chars<is_printable>},
    {"isspace", all_chars<is_space>},
    {"istitle", has_property<is_titled>},
    {"isupper", has_property<is_all_upper>},
    {"join", join_method},
    {"ljust", justify_method<Justify::kLeft>},
    {"lower", mapped<lower>},
    {"lstrip", stripped<Side::kLeft>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"rfind", find_method_of_str<true>},
    {"rindex", index_method<true>},
    {"rjust", justify_method<Justify::kRight>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", stripped<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", has_affix<false>},
    {"strip", stripped<Side::kBoth>},
    {"swapcase", mapped<swapcase>},
    {"title", mapped<title>},
    {"upper", mapped<upper>},
    {"zfill", zfill_method},
};

}  // namespace

std::span<const MethodEntry> string_methods() { return kMethods; }

Str replace_charged(Context& ctx, const Str& s, const Str& old, const Str& with,
                    std::int64_t limit) {
  ctx.charge_search(s.size(), old.size());
  // The result is at most this long; the count is only made when it could be too much.
  double growth = 0;
  if (with.size() > old.size()) {
    const std::size_t matches = old.empty() ? s.length() + 1 : s.size() / old.size();
    growth = static_cast<double>(matches) * static_cast<double>(with.size() - old.size());
    if (limit >= 0)
      growth = std::min(growth, static_cast<double>(limit) * static_cast<double>(with.size()));
  }
  if (growth > 1e6 && !old.empty()) {
    std::size_t matches = 0;
    for (std::size_t i = 0; (i = s.text().find(old.text(), i)) != std::string::npos;
         i += old.size())
      ++matches;
    growth = static_cast<double>(matches) * static_cast<double>(with.size() - old.size());
  }
  ctx.charge_bytes(static_cast<double>(s.size()) + growth);
  return replace(s, old.text(), s.safe() ? escape_html(with) : with, limit);
}

bool is_all_upper(const Str& s) {
  bool any = false;
  bool all = true;
  for_each_char(s.text(), [&](const Char& c) {
    any = any || is_upper(c.code);
    all = all && !is_lower(c.code);
  });
  return any && all;
}

bool is_all_lower(const Str& s) {
  bool any = false;
  bool all = true;
  for_each_char(s.text(), [&](const Char& c) {
    any = any || is_lower(c.code);
    all = all && !is_upper(c.code);
  });
  return any && all;
}

}  // namespace minisgl::jinja
