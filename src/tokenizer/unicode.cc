#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/utf8.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

std::string normalize(std::string_view text, int form, const char* name) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (length < 0)
    throw Error(std::string("cannot normalize a text to ") + name + ": " + utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(length)};
}

// The quick check of Unicode's normalization form C, as far as it can be done character by
// character. Source: UAX 15, section 9; the data is read off utf8proc.
class NfcTable {
 public:
  static constexpr std::uint8_t kUnsure = 0xFF;  ///< Quick_Check = No or Maybe
  static constexpr std::uint8_t kStarter = 0;

  static const NfcTable& get() {
    static const NfcTable table;
    return table;
  }
  // kUnsure, or the combining class of a character that composition never changes.
  std::uint8_t of(char32_t c) const { return c < kEnd ? values_[c] : kStarter; }

 private:
  static constexpr char32_t kEnd = 0x30000;  // beyond, no character decomposes or combines

  NfcTable() : values_(kEnd, kStarter) {
    for (char32_t c = 0; c < kEnd; ++c) {
      if (c >= 0xAC00 && c <= 0xD7FF) continue;  // Hangul syllables, which are composed; surrogates
      const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (property->combining_class != 0)
        values_[c] = static_cast<std::uint8_t>(property->combining_class);
    }
    for (char32_t c = 0; c < kEnd; ++c)
      if (!(c >= 0xAC00 && c <= 0xD7FF)) mark_composition(c);
    for (char32_t vowel = 0x1161; vowel <= 0x1175; ++vowel) values_[vowel] = kUnsure;
    for (char32_t tail = 0x11A8; tail <= 0x11C2; ++tail) values_[tail] = kUnsure;
  }

  void mark_composition(char32_t c) {
    std::array<utf8proc_int32_t, 8> parts{};
    int last_boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c), parts.data(), std::ssize(parts),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &last_boundary);
    if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) return;
    std::string text;
    append_utf8(text, c);
    if (to_nfc(text) != text) {
      values_[c] = kUnsure;
    } else if (count > 1) {  // a composite: what it ends with composes with what is before it
      values_[static_cast<std::size_t>(parts[static_cast<std::size_t>(count) - 1])] = kUnsure;
    }
  }

  std::vector<std::uint8_t> values_;
};

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

std::string to_nfc(std::string_view text) { return normalize(text, UTF8PROC_COMPOSE, "NFC"); }
std::string to_nfd(std::string_view text) { return normalize(text, UTF8PROC_DECOMPOSE, "NFD"); }
std::string to_nfkc(std::string_view text) {
  return normalize(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, "NFKC");
}
std::string to_nfkd(std::string_view text) {
  return normalize(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, "NFKD");
}

bool is_surely_nfc(std::string_view text) {
  const NfcTable* table = nullptr;
  std::uint8_t last = NfcTable::kStarter;
  for (std::size_t pos = 0;;) {
    const std::size_t run = ascii_run(text, pos);
    if (run > 0) last = NfcTable::kStarter;
    pos += run;
    if (pos >= text.size()) return true;
    if (table == nullptr) table = &NfcTable::get();
    const Utf8Char c = decode_utf8(text, pos);
    const std::uint8_t value = table->of(c.code_point);
    // Non-starters in a row must be in the order of their classes.
    if (value == NfcTable::kUnsure || (value != NfcTable::kStarter && value < last)) return false;
    last = value;
    pos += c.length;
  }
}

}  // namespace minisgl
