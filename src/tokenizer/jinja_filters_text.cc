// Filters that make text of text.

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_string_methods.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

// str(v), counted.
Str text_of(Context& ctx, const Value& v) {
  Str s = to_str(ctx, v);
  ctx.charge_bytes(static_cast<double>(s.size()));
  return s;
}

template <Str (*kFunction)(const Str&)>
Value mapped(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("filter", args, {});
  return Value::string(kFunction(text_of(ctx, v)));
}

Value trim(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("trim", args, {"chars"});
  std::optional<std::string_view> chars;
  if (!bound.none_or_absent(0)) chars = bound.string(0).text();
  return Value::string(strip(text_of(ctx, v), Side::kBoth, chars));
}

Value replace_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  const Str old = text_of(ctx, bound.at(0));
  const Str with = text_of(ctx, bound.at(1));
  Str s = text_of(ctx, v);
  if (!ctx.autoescape()) s = s.with_safe(false);
  return Value::string(replace_charged(ctx, s, old, with, bound.integer(2, -1)));
}

Value indent(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  if (!v.is_string()) {
    require_defined(v);
    throw TemplateError("unsupported operand type(s) for +=: '" + std::string(type_name(v)) +
                        "' and 'str'");
  }
  Str indentation;
  if (bound.has(0) && bound.at(0).is_string()) {
    indentation = bound.at(0).as_string();
  } else {
    const std::int64_t width = std::max<std::int64_t>(0, bound.integer(0, 4));
    ctx.charge_bytes(static_cast<double>(width));
    indentation = Str(std::string(static_cast<std::size_t>(width), ' '));
  }
  const Str& s = v.as_string();
  const bool blank = bound.truth(2, false);
  const std::vector<Str> lines = split_lines(concat(s, Str("\n", false, s.safe())), false);
  ctx.charge_bytes(static_cast<double>(s.size()) +
                   static_cast<double>(lines.size()) * static_cast<double>(indentation.size()));
  StrBuilder out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool indented = i == 0 ? bound.truth(1, false) : blank || !lines[i].empty();
    if (indented) out.append(indentation);
    out.append(lines[i]);
  }
  return Value::string(out.build(s.safe()));
}

Value center_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("center", args, {"width"});
  const std::int64_t width = bound.integer(0, 80);
  ctx.charge_bytes(static_cast<double>(width));
  return Value::string(center(text_of(ctx, v), width, Str(" ")));
}

Value truncate(Context&, const Value& v, const Arguments& args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound.integer(0, 255);
  const Str end = bound.has(2) ? bound.string(2) : Str("...");
  const std::int64_t leeway = bound.integer(3, 5);
  const auto end_length = static_cast<std::int64_t>(end.length());
  if (length < end_length)
    throw TemplateError("expected length >= " + std::to_string(end_length) + ", got " +
                        std::to_string(length));
  if (leeway < 0) throw TemplateError("expected leeway >= 0, got " + std::to_string(leeway));
  const auto size = jinja::length(v);
  if (!size) throw TemplateError("object of type '" + std::string(type_name(v)) + "' has no len()");
  if (static_cast<std::int64_t>(*size) <= length + leeway) return v;
  if (!v.is_string())
    throw TemplateError("truncate needs a string, not " + std::string(type_name(v)));
  const Str& s = v.as_string();
  const Str cut = s.slice(0, s.offset_of(static_cast<std::size_t>(length - end_length)));
  if (bound.truth(1, false)) return Value::string(concat(cut, end));
  return Value::string(concat(split(cut, " ", 1, /*from_right=*/true)[0], end));
}

// One paragraph to lines of at most `width` characters: words are kept whole unless longer than a
// line, and break after hyphens between letters (as Python's textwrap).
void wrap_line(const Str& line, std::size_t width, bool break_words, bool break_hyphens,
               std::vector<Str>& out) {
  std::vector<Span> chunks;  // blanks and words by turns
  bool was_space = false;
  std::uint32_t before = 0;
  for_each_char(line.text(), [&](const Char& c) {
    const bool space = c.code == ' ' || c.code == '\t';
    const bool hyphen = break_hyphens && before == '-' && is_letter(c.code) &&
                        chunks.back().end - chunks.back().begin > 2;
    if (chunks.empty() || space != was_space || hyphen) chunks.push_back({c.begin, c.begin});
    chunks.back().end = c.end;
    was_space = space;
    before = c.code;
  });
  const auto chars = [&](std::size_t begin, std::size_t end) {
    return count_code_points(std::string_view(line.text()).substr(begin, end - begin));
  };
  const auto is_blank = [&](const Span& c) { return is_space(char_at(line.text(), c.begin).code); };
  for (std::size_t i = 0; i < chunks.size();) {
    if (is_blank(chunks[i]) && !out.empty()) {
      ++i;  // no line but the first begins with blanks
      continue;
    }
    const std::size_t begin = chunks[i].begin;
    std::size_t end = begin;
    while (i < chunks.size() && chars(begin, chunks[i].end) <= width) end = chunks[i++].end;
    if (end == begin) {  // a word longer than a line
      if (break_words) {
        const Str rest = line.slice(begin, chunks[i].end);
        end = begin + rest.offset_of(std::max<std::size_t>(1, width));
        chunks[i].begin = end;
        if (chunks[i].begin >= chunks[i].end) ++i;
      } else {
        end = chunks[i++].end;
      }
    } else if (break_words && i < chunks.size() && !is_blank(chunks[i]) &&
               chars(chunks[i].begin, chunks[i].end) > width && chars(begin, end) < width) {
      const Str rest = line.slice(chunks[i].begin, chunks[i].end);
      end = chunks[i].begin + rest.offset_of(width - chars(begin, end));
      chunks[i].begin = end;
    }
    const Str text = strip(line.slice(begin, end), Side::kRight, " \t");
    if (!text.empty()) out.push_back(text);
  }
}

Value wordwrap(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("wordwrap", args,
                    {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  require_defined(v);
  if (!v.is_string())
    throw TemplateError("'" + std::string(type_name(v)) + "' object has no attribute 'splitlines'");
  const Str& s = v.as_string();
  const std::int64_t width = bound.integer(0, 79);
  if (width <= 0) throw TemplateError("invalid width " + std::to_string(width) + " (must be > 0)");
  const Str separator = bound.none_or_absent(2) ? Str("\n") : bound.string(2);
  std::vector<Str> paragraphs;
  for (const Str& line : split_lines(s, false)) {
    // A word that is longer than a line is counted again for each of its lines.
    const auto bytes = static_cast<double>(line.size());
    ctx.charge(static_cast<std::int64_t>(bytes + bytes * bytes / 64 / static_cast<double>(width)));
    std::vector<Str> lines;
    wrap_line(line, static_cast<std::size_t>(width), bound.truth(1, true), bound.truth(3, true),
              lines);
    paragraphs.push_back(join(separator, lines));
  }
  return Value::string(join(separator, paragraphs));
}

Value wordcount(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("wordcount", args, {});
  Int words = 0;
  bool in_word = false;
  for_each_char(text_of(ctx, v).text(), [&](const Char& c) {
    const bool word = is_letter(c.code) || is_numeric(c.code) || c.code == '_';
    if (word && !in_word) ++words;
    in_word = word;
  });
  return Value::integer(words);
}

Value format_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Str format = text_of(ctx, v);
  if (args.keywords.empty())
    return Value::string(format_percent(ctx, format, Value::tuple(args.positional)));
  if (!args.positional.empty())
    throw TemplateError("can't handle positional and keyword arguments at the same time");
  Dict named;
  for (const auto& [name, value] : args.keywords) named.set(name, value);
  return Value::string(format_percent(ctx, format, Value::dict(std::move(named))));
}

void append_quoted(Context& ctx, const Value& v, bool for_query, StrBuilder& out) {
  const Str s = text_of(ctx, v);
  MarkCursor marks(s);
  for (std::size_t i = 0; i < s.size(); ++i) {
    const auto byte = static_cast<unsigned char>(s.text()[i]);
    const char c = static_cast<char>(byte);
    const bool plain = byte < 0x80 && (is_word(byte) || c == '-' || c == '.' || c == '~' ||
                                       (c == '/' && !for_query));
    std::string text(1, c);
    if (c == ' ' && for_query) {
      text = "+";
    } else if (!plain) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      text = {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
    out.append(text, marks.at(i));
  }
}

Value urlencode(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("urlencode", args, {});
  StrBuilder out;
  if (v.is_string() || !is_iterable(v)) {
    append_quoted(ctx, v, /*for_query=*/false, out);
    return Value::string(out.build());
  }
  Value pairs = v;
  if (v.is(Kind::kDict)) pairs = call_value(ctx, get_attribute(ctx, v, "items"), {});
  bool first = true;
  const ListRef all = iterate(ctx, pairs);
  for (const Value& pair : all->items()) {
    const ListRef both = iterate(ctx, pair);
    if (both->size() != 2) throw TemplateError("urlencode needs pairs of a key and a value");
    if (!first) out.append("&");
    first = false;
    append_quoted(ctx, both->items()[0], /*for_query=*/true, out);
    out.append("=");
    append_quoted(ctx, both->items()[1], /*for_query=*/true, out);
  }
  return Value::string(out.build());
}

Value string_filter(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("string", args, {});
  return v.is_string() ? v : Value::string(text_of(ctx, v));
}

Value safe(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("safe", args, {});
  return Value::string(text_of(ctx, v).with_safe(true));
}

Str force_escaped(const Str& s) { return escape_html(s.with_safe(false)); }

Value pprint(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("pprint", args, {});
  StrBuilder out;
  append_repr(ctx, v, out);
  return Value::string(out.build());
}

Value xmlattr(Context& ctx, const Value& v, const Arguments& args) {
  const Bound bound("xmlattr", args, {"autospace"});
  if (!v.is(Kind::kDict)) throw TemplateError("xmlattr needs a dict");
  std::vector<Str> attributes;
  for (const auto& [key, value] : v.as_dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    const Str name = text_of(ctx, key);
    if (name.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      throw TemplateError("Invalid character in attribute name: " + repr_text(ctx, key));
    StrBuilder out;
    out.append(escape_html(name));
    out.append("=\"");
    out.append(escape_html(text_of(ctx, value)));
    out.append("\"");
    attributes.push_back(out.build());
  }
  Str all = join(Str(" "), attributes);
  if (bound.truth(0, true) && !all.empty()) all = concat(Str(" "), all);
  return Value::string(all.with_safe(ctx.autoescape()));
}

constexpr MethodEntry kFilters[] = {
    {"capitalize", mapped<capitalize>},
    {"center", center_filter},
    {"e", mapped<escape_html>},
    {"escape", mapped<escape_html>},
    {"forceescape", mapped<force_escaped>},
    {"format", format_filter},
    {"indent", indent},
    {"lower", mapped<lower>},
    {"pprint", pprint},
    {"replace", replace_filter},
    {"safe", safe},
    {"string", string_filter},
    {"striptags", mapped<strip_tags>},
    {"title", mapped<title_words>},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", mapped<upper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
    {"wordwrap", wordwrap},
    {"xmlattr", xmlattr},
};

}  // namespace

std::span<const MethodEntry> text_filters() { return kFilters; }

}  // namespace minisgl::jinja
