#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "base/utf8.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Blocks in which no character decomposes, composes with its predecessor or is reordered.
bool is_inert(char32_t c) {
  return c < 0x300 ||                     // Latin; the first combining mark is U+0300
         (c >= 0x400 && c <= 0x482) ||    // Cyrillic, up to its combining marks
         (c >= 0x48A && c <= 0x52F) ||    //
         (c >= 0x2010 && c <= 0x2027) ||  // dashes and quotes
         (c >= 0x2500 && c <= 0x25FF) ||  // box drawing, shapes
         (c >= 0x3000 && c <= 0x3029) ||  // CJK punctuation
         (c >= 0x3041 && c <= 0x3096) ||  // Hiragana
         (c >= 0x30A0 && c <= 0x30FF) ||  // Katakana
         (c >= 0x3400 && c <= 0x9FFF) ||  // CJK ideographs
         (c >= 0xAC00 && c <= 0xD7A3) ||  // Hangul syllables
         (c >= 0xFF00 && c <= 0xFFEF) ||  // full-width forms
         (c >= 0x1F300 && c <= 0x1FAFF);  // emoji
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    // Symbols with Other_Alphabetic (circled and squared Latin letters), and the two joiners.
    case UTF8PROC_CATEGORY_SO:
      return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    default: return c == 0x200C || c == 0x200D;
  }
}

std::string to_nfc(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (length < 0)
    throw Error(std::string("cannot normalize a text to NFC: ") + utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(length)};
}

bool is_surely_nfc(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Char c = decode_utf8(text, pos);
    if (!is_inert(c.code_point)) return false;
    pos += c.length;
  }
  return true;
}

}  // namespace minisgl
