#include "tokenizer/character_classes.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <string>

#include "tokenizer/unicode.h"

namespace minisgl {
namespace {

// The classes of a general category. utf8proc and PCRE2 may be of different versions of Unicode:
// characters that one of them does not know yet are left out.
std::uint8_t classes_of(utf8proc_category_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kLetter | kUpperLike;
    case UTF8PROC_CATEGORY_LL: return kLetter | kLowerLike;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kLetter | kUpperLike | kLowerLike;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark | kUpperLike | kLowerLike;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kPunctuation;
    default: return 0;
  }
}

TEST(CharacterClassesTest, EveryCodePointHasTheClassesOfItsGeneralCategory) {
  const CharacterClasses& classes = CharacterClasses::get();
  int with_a_class = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::uint8_t expected = classes_of(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
    if (is_white_space(c)) expected |= kWhiteSpace;
    if (c == '\r' || c == '\n') expected |= kLineBreak;
    if (classes.of(c) == 0 || expected == 0) continue;
    ++with_a_class;
    ASSERT_EQ(classes.of(c), expected) << "U+" << std::hex << static_cast<std::uint32_t>(c);
  }
  EXPECT_GT(with_a_class, 140'000);  // Unicode 13 has 143,859 characters
  EXPECT_EQ(classes.of(0x110000), 0);
}

TEST(CharacterClassesTest, WhiteSpaceIsUnicodes) {
  for (char32_t c = 0; c < 0x110000; ++c)
    ASSERT_EQ((CharacterClasses::get().of(c) & kWhiteSpace) != 0, is_white_space(c))
        << "U+" << std::hex << static_cast<std::uint32_t>(c);
}

}  // namespace
}  // namespace minisgl
