#include "tokenizer/jinja_text.h"

#include <algorithm>
#include <array>
#include <utility>

namespace minisgl::jinja {
namespace {

// Byte ranges that separate the pieces of a split.
using Gaps = std::vector<Span>;

std::vector<Str> pieces_between(const Str& s, const Gaps& gaps) {
  std::vector<Str> pieces;
  pieces.reserve(gaps.size() + 1);
  std::size_t begin = 0;
  for (const Span& gap : gaps) {
    pieces.push_back(s.slice(begin, gap.begin));
    begin = gap.end;
  }
  pieces.push_back(s.slice(begin, s.size()));
  return pieces;
}

void keep_gaps(Gaps& gaps, std::int64_t limit, bool from_right) {
  if (limit < 0 || gaps.size() <= static_cast<std::size_t>(limit)) return;
  const auto extra = static_cast<std::ptrdiff_t>(gaps.size()) - static_cast<std::ptrdiff_t>(limit);
  if (from_right) {
    gaps.erase(gaps.begin(), gaps.begin() + extra);
  } else {
    gaps.erase(gaps.end() - extra, gaps.end());
  }
}

// Every run of blanks becomes one blank.
Str collapse_blanks(const Str& s) {
  StrBuilder out;
  MarkCursor marks(s);
  bool in_run = false;
  for_each_char(s.text(), [&](const Char& c) {
    if (!is_space(c.code)) {
      out.append(s, c.begin, c.end);
    } else if (!in_run) {
      out.append(" ", marks.at(c.begin));
    }
    in_run = is_space(c.code);
  });
  return out.build(s.safe());
}

// The entities that escape_html() makes, and their other usual names.
Str unescape_html(const Str& s) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kEntities{
      {{"&amp;", "&"},
       {"&lt;", "<"},
       {"&gt;", ">"},
       {"&#39;", "'"},
       {"&apos;", "'"},
       {"&#34;", "\""},
       {"&quot;", "\""}}};
  StrBuilder out;
  MarkCursor marks(s);
  std::size_t done = 0;
  for (std::size_t i = 0; (i = s.text().find('&', i)) != std::string::npos; ++i) {
    for (const auto& [entity, plain] : kEntities) {
      if (s.text().compare(i, entity.size(), entity) != 0) continue;
      out.append(s, done, i);
      out.append(plain, marks.at(i));
      done = i + entity.size();
    }
  }
  out.append(s, done, s.size());
  return out.build(s.safe());
}

bool is_line_end(std::uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

Str strip(const Str& s, Side side, std::optional<std::string_view> chars) {
  std::vector<std::uint32_t> set;
  if (chars) for_each_char(*chars, [&](const Char& c) { set.push_back(c.code); });
  std::ranges::sort(set);
  const auto goes = [&](std::uint32_t code) {
    return chars ? std::ranges::binary_search(set, code) : is_space(code);
  };
  const std::string& text = s.text();
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    const Char c = char_at(text, begin);
    if (!goes(c.code)) break;
    begin = c.end;
  }
  while (side != Side::kLeft && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!goes(char_at(text, last).code)) break;
    end = last;
  }
  return s.slice(begin, end);
}

Str replace(const Str& s, std::string_view old, const Str& with, std::int64_t limit) {
  StrBuilder out;
  const std::string& text = s.text();
  std::size_t done = 0;
  if (old.empty()) {
    // One in front of every character and one at the end.
    for (std::size_t i = 0; limit != 0; --limit) {
      out.append(s, done, i);
      out.append(with);
      done = i;
      if (i >= text.size()) break;
      i = char_at(text, i).end;
    }
  } else {
    for (; limit != 0; --limit) {
      const std::size_t found = text.find(old, done);
      if (found == std::string::npos) break;
      out.append(s, done, found);
      out.append(with);
      done = found + old.size();
    }
  }
  out.append(s, done, s.size());
  return out.build(s.safe());
}

std::vector<Str> split_blanks(const Str& s, std::int64_t limit, bool from_right) {
  const Str inner = strip(s, Side::kBoth);
  if (inner.empty()) return {};
  Gaps gaps;
  bool in_gap = false;
  for_each_char(inner.text(), [&](const Char& c) {
    if (!is_space(c.code)) {
      in_gap = false;
    } else if (in_gap) {
      gaps.back().end = c.end;
    } else {
      gaps.push_back({c.begin, c.end});
      in_gap = true;
    }
  });
  const bool cut = limit >= 0 && gaps.size() >= static_cast<std::size_t>(limit);
  keep_gaps(gaps, limit, from_right);
  std::vector<Str> pieces = pieces_between(inner, gaps);
  if (cut) {
    // Once the limit is reached the rest is taken as it is, with the blanks at the text's own end.
    const std::size_t lead = strip(s, Side::kRight).size() - inner.size();
    if (from_right) {
      const std::size_t end = gaps.empty() ? inner.size() : gaps.front().begin;
      pieces.front() = s.slice(0, lead + end);
    } else {
      const std::size_t begin = gaps.empty() ? 0 : gaps.back().end;
      pieces.back() = s.slice(lead + begin, s.size());
    }
  }
  return pieces;
}

std::vector<Str> split(const Str& s, std::string_view separator, std::int64_t limit,
                       bool from_right) {
  Gaps gaps;
  const std::string& text = s.text();
  if (from_right) {
    for (std::size_t end = text.size(); end >= separator.size();) {
      const std::size_t found = text.rfind(separator, end - separator.size());
      if (found == std::string::npos) break;
      gaps.push_back({found, found + separator.size()});
      end = found;
    }
    std::reverse(gaps.begin(), gaps.end());
  } else {
    for (std::size_t i = 0; (i = text.find(separator, i)) != std::string::npos;
         i += separator.size()) {
      gaps.push_back({i, i + separator.size()});
    }
  }
  keep_gaps(gaps, limit, from_right);
  return pieces_between(s, gaps);
}

std::vector<Str> split_lines(const Str& s, bool keep_ends) {
  std::vector<Str> lines;
  const std::string& text = s.text();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    i = c.end;
    if (!is_line_end(c.code)) continue;
    if (c.code == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(s.slice(begin, keep_ends ? i : c.begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(s.slice(begin, text.size()));
  return lines;
}

Str padded(const Str& s, std::size_t left, std::size_t right, const Str& fill) {
  StrBuilder out;
  for (std::size_t i = 0; i < left; ++i) out.append(fill);
  out.append(s);
  for (std::size_t i = 0; i < right; ++i) out.append(fill);
  return out.build(s.safe());
}

Str center(const Str& s, std::int64_t width, const Str& fill) {
  const std::int64_t total =
      std::max<std::int64_t>(0, width - static_cast<std::int64_t>(s.length()));
  // CPython: the odd blank goes to the left when the width is odd too.
  const std::int64_t left = total / 2 + (total & width & 1);
  return padded(s, static_cast<std::size_t>(left), static_cast<std::size_t>(total - left), fill);
}

Str reversed(const Str& s) {
  return pick(s, static_cast<std::int64_t>(s.length()) - 1, static_cast<std::int64_t>(s.length()),
              -1);
}

Str join(const Str& separator, const std::vector<Str>& pieces) {
  StrBuilder out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(pieces[i]);
  }
  return out.build(separator.safe());
}

Str concat(const Str& a, const Str& b) {
  // Markup + text escapes the text.
  if (a.safe() != b.safe()) return a.safe() ? concat(a, escape_html(b)) : concat(escape_html(a), b);
  StrBuilder out;
  out.append(a);
  out.append(b);
  return out.build(a.safe());
}

Str expand_tabs(const Str& s, std::int64_t tab_size) {
  StrBuilder out;
  MarkCursor marks(s);
  std::int64_t column = 0;
  for_each_char(s.text(), [&](const Char& c) {
    if (c.code != '\t') {
      out.append(s, c.begin, c.end);
      column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    } else if (tab_size > 0) {
      const std::int64_t blanks = tab_size - column % tab_size;
      out.append(std::string(static_cast<std::size_t>(blanks), ' '), marks.at(c.begin));
      column += blanks;
    }
  });
  return out.build(s.safe());
}

Str escape_html(const Str& s) {
  if (s.safe()) return s;
  StrBuilder out;
  MarkCursor marks(s);
  std::size_t done = 0;
  const std::string& text = s.text();
  for (std::size_t i = 0; (i = text.find_first_of("&<>'\"", i)) != std::string::npos; ++i) {
    const char c = text[i];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                                : "&#34;";
    out.append(s, done, i);
    out.append(entity, marks.at(i));
    done = i + 1;
  }
  out.append(s, done, s.size());
  return out.build(/*safe=*/true);
}

Str strip_tags(const Str& s) {
  const auto without = [](const Str& in, std::string_view open, std::string_view close) {
    StrBuilder out;
    std::size_t done = 0;
    while (true) {
      const std::size_t begin = in.text().find(open, done);
      if (begin == std::string::npos) break;
      const std::size_t end = in.text().find(close, begin + open.size());
      if (end == std::string::npos) break;
      out.append(in, done, begin);
      done = end + close.size();
    }
    out.append(in, done, in.size());
    return out.build();
  };
  const Str bare = without(without(s.with_safe(false), "<!--", "-->"), "<", ">");
  return unescape_html(collapse_blanks(strip(bare, Side::kBoth)));
}

Str pick(const Str& s, std::int64_t start, std::int64_t count, std::int64_t step) {
  if (count <= 0) return Str(std::string(), false, s.safe());
  if (step == 1) {
    return s.slice(s.offset_of(static_cast<std::size_t>(start)),
                   s.offset_of(static_cast<std::size_t>(start + count)));
  }
  std::vector<Char> chars;
  chars.reserve(s.length());
  for_each_char(s.text(), [&](const Char& c) { chars.push_back(c); });
  StrBuilder out;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(start + i * step);
    if (at < chars.size()) out.append(s, chars[at].begin, chars[at].end);
  }
  return out.build(s.safe());
}

SliceRange clip_slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                      std::int64_t step, std::int64_t length) {
  const std::int64_t lowest = step < 0 ? -1 : 0;
  const std::int64_t highest = step < 0 ? length - 1 : length;
  const auto clip = [&](std::optional<std::int64_t> i, std::int64_t otherwise) {
    if (!i) return otherwise;
    std::int64_t at = *i;
    if (at < 0) at = at < -length ? lowest : at + length;
    return std::clamp(at, lowest, std::max(lowest, highest));
  };
  const std::int64_t first = clip(start, step < 0 ? highest : lowest);
  const std::int64_t last = clip(stop, step < 0 ? lowest : highest);
  // The distance fits: both are within [-1, length]. |step| is at most 2^62 (checked by callers).
  const std::int64_t distance = step < 0 ? first - last : last - first;
  const std::int64_t stride = step < 0 ? -step : step;
  return {first, last, distance <= 0 ? 0 : (distance + stride - 1) / stride};
}

}  // namespace minisgl::jinja
