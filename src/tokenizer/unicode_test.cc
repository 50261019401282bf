#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "testing/random.h"

namespace minisgl {
namespace {

std::string utf8(std::initializer_list<char32_t> characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  return text;
}

// Expected: Python's unicodedata.normalize("NFC", ...).
TEST(UnicodeTest, ComposesAsTheStandardSays) {
  EXPECT_EQ(to_nfc(utf8({'e', 0x301})), utf8({0xE9}));
  EXPECT_EQ(to_nfc(utf8({0x212B})), utf8({0xC5}));
  EXPECT_EQ(to_nfc(utf8({0x1112, 0x1161, 0x11AB})), utf8({0xD55C}));
  EXPECT_EQ(to_nfc(utf8({'q', 0x307, 0x323})), utf8({'q', 0x323, 0x307}));
  EXPECT_EQ(to_nfc(utf8({0xFB1D})), utf8({0x5D9, 0x5B4})) << "a composition exclusion";
  EXPECT_EQ(to_nfc(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(to_nfc(""), "");
}

TEST(UnicodeTest, TextThatIsSurelyComposedIsLeftAloneByComposition) {
  std::vector<char32_t> eventful;  // what decomposes, combines or is reordered, and its neighbours
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = utf8({c});
    if (is_surely_nfc(text)) {
      ASSERT_EQ(to_nfc(text), text) << std::hex << static_cast<unsigned>(c);
    }
    const bool combines = to_nfc(utf8({'a', c, 0x301})) != utf8({'a', c, 0x301});
    if (!is_surely_nfc(text) || combines) eventful.push_back(c);
  }
  EXPECT_GT(eventful.size(), 1500U);
  testing_util::Random random(2);
  int sure = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    for (std::int64_t i = random.between(1, 4); i > 0; --i)
      append_utf8(text, eventful[static_cast<std::size_t>(
                            random.below(static_cast<std::int64_t>(eventful.size())))]);
    if (random.below(2) == 0) text += "e\xCC\x81";
    if (!is_surely_nfc(text)) continue;
    ++sure;
    ASSERT_EQ(to_nfc(text), text);
  }
  EXPECT_GT(sure, 1000);
}

TEST(UnicodeTest, ComposedTextOfManyLanguagesIsSurelyComposed) {
  for (const char* text :
       {"Zürich, Ελλάδα, Москва, Łódź", "हिन्दी में", "ภาษาไทย กิน", "العَرَبِيَّة", "한국어와 日本語、中文",
        "עִבְרִית", "Tiếng Việt", "ქართული", "🫠👩‍👩‍👧‍👦"})
    EXPECT_TRUE(is_surely_nfc(text)) << text;
  EXPECT_FALSE(is_surely_nfc(utf8({'e', 0x301})));
  EXPECT_FALSE(is_surely_nfc(utf8({0x212B}))) << "the angstrom sign becomes a letter";
  EXPECT_FALSE(is_surely_nfc(utf8({0x1112, 0x1161}))) << "jamo become a syllable";
  EXPECT_FALSE(is_surely_nfc(utf8({'q', 0x5B4, 0x5B0}))) << "not in the order of their classes";
}

TEST(UnicodeTest, ClassesOfSingleCharacters) {
  for (const char32_t c : {U' ', U'\t', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'})
    EXPECT_TRUE(is_white_space(c));
  for (const char32_t c : {U'\u180E', U'\u200B', U'\uFEFF', U'\x1C'})
    EXPECT_FALSE(is_white_space(c));
  for (const char32_t c : {U'a', U'_', U'7', U'\u4E16', U'\u0301', U'\u2167', U'\u24B6', U'\u200D'})
    EXPECT_TRUE(is_word_character(c)) << std::hex << static_cast<unsigned>(c);
  for (const char32_t c : {U' ', U'-', U'.', U'\u00BD', U'\u2014', U'<'})
    EXPECT_FALSE(is_word_character(c)) << std::hex << static_cast<unsigned>(c);
}

}  // namespace
}  // namespace minisgl
