// Character properties and the letter case of marked strings (declared in jinja_text.h).

#include <utf8proc.h>

#include <array>

#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

utf8proc_category_t category(std::uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool between(utf8proc_category_t c, utf8proc_category_t first, utf8proc_category_t last) {
  return c >= first && c <= last;
}

// Upper case of the letters that become several (Unicode SpecialCasing.txt, the unconditional
// ones of the Latin script); empty for all others.
std::string_view special_upper(std::uint32_t code) {
  switch (code) {
    case 0xDF: return "SS";
    case 0x149: return "\xCA\xBCN";
    case 0x1F0: return "J\xCC\x8C";
    case 0x587: return "\xD4\xB5\xD5\x92";
    case 0x1E96: return "H\xCC\xB1";
    case 0xFB00: return "FF";
    case 0xFB01: return "FI";
    case 0xFB02: return "FL";
    case 0xFB03: return "FFI";
    case 0xFB04: return "FFL";
    case 0xFB05:
    case 0xFB06: return "ST";
    default: return {};
  }
}

std::string upper_char(std::uint32_t code) {
  const std::string_view special = special_upper(code);
  if (!special.empty()) return std::string(special);
  return encode_utf8(
      static_cast<std::uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}

std::string title_char(std::uint32_t code) {
  const std::string_view special = special_upper(code);
  if (!special.empty()) {  // "SS" -> "Ss"
    std::string out(special);
    for (std::size_t i = 1; i < out.size(); ++i) {
      if (out[i] >= 'A' && out[i] <= 'Z') out[i] = static_cast<char>(out[i] - 'A' + 'a');
    }
    return out;
  }
  return encode_utf8(
      static_cast<std::uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
}

std::string lower_char(std::uint32_t code) {
  if (code == 0x130) return "i\xCC\x87";  // I with a dot: i and a combining dot
  return encode_utf8(
      static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

bool is_cased(std::uint32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

// A capital sigma at the end of a word has a form of its own.
bool is_final_sigma(std::string_view text, const Char& c) {
  if (c.code != 0x3A3 || c.begin == 0) return false;
  std::size_t before = c.begin - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  return is_cased(char_at(text, before).code) &&
         (c.end >= text.size() || !is_cased(char_at(text, c.end).code));
}

// `f(Char)` gives the text that replaces a character; marks stay with it.
template <class F>
Str map_chars(const Str& s, F f) {
  StrBuilder out;
  MarkCursor marks(s);
  for_each_char(s.text(), [&](const Char& c) { out.append(f(c), marks.at(c.begin)); });
  return out.build(s.safe());
}

std::string lower_in(std::string_view text, const Char& c) {
  if (c.code < 0x80)
    return {static_cast<char>(c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code)};
  return is_final_sigma(text, c) ? "\xCF\x82" : lower_char(c.code);
}

}  // namespace

bool is_space(std::uint32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(std::uint32_t code) {
  if (code < 0x7F) return code >= 0x20;
  const auto c = category(code);
  return c != UTF8PROC_CATEGORY_CN && !between(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_CO);
}

bool is_letter(std::uint32_t code) {
  return between(category(code), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

bool is_decimal(std::uint32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(std::uint32_t code) {
  return between(category(code), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_upper(std::uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LU; }
bool is_lower(std::uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LL; }

bool is_word(std::uint32_t code) {
  if (code < 0x80) {
    return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') ||
           (code >= 'a' && code <= 'z') || code == '_';
  }
  return between(category(code), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_PC);
}

Str upper(const Str& s) {
  return map_chars(s, [](const Char& c) { return upper_char(c.code); });
}

Str lower(const Str& s) {
  return map_chars(s, [&](const Char& c) { return lower_in(s.text(), c); });
}

Str casefold(const Str& s) {
  return map_chars(s, [](const Char& c) {
    std::array<utf8proc_int32_t, 8> folded{};
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), folded.data(),
                                           folded.size(), UTF8PROC_CASEFOLD, &boundary);
    std::string out;
    for (utf8proc_ssize_t i = 0; i < n; ++i)
      out += encode_utf8(static_cast<std::uint32_t>(folded[static_cast<std::size_t>(i)]));
    return out;
  });
}

Str swapcase(const Str& s) {
  return map_chars(s, [&](const Char& c) {
    return is_upper(c.code) ? lower_in(s.text(), c) : upper_char(c.code);
  });
}

Str capitalize(const Str& s) {
  return map_chars(
      s, [&](const Char& c) { return c.begin == 0 ? title_char(c.code) : lower_in(s.text(), c); });
}

Str title(const Str& s) {
  bool in_word = false;
  return map_chars(s, [&](const Char& c) {
    const bool cased = is_cased(c.code);
    std::string out = in_word ? lower_in(s.text(), c) : title_char(c.code);
    in_word = cased;
    return out;
  });
}

Str title_words(const Str& s) {
  bool in_word = false;
  return map_chars(s, [&](const Char& c) {
    const bool separates =
        is_space(c.code) ||
        (c.code < 0x80 && c.code != 0 &&
         std::string_view("-({[<").find(static_cast<char>(c.code)) != std::string_view::npos);
    std::string out = in_word ? lower_in(s.text(), c) : upper_char(c.code);
    in_word = !separates;
    return out;
  });
}

}  // namespace minisgl::jinja
