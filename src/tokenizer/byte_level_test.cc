#include "tokenizer/byte_level.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/utf8.h"

namespace minisgl {
namespace {

TEST(ByteLevelTest, EveryByteHasACharacterOfItsOwnAndComesBack) {
  std::set<char32_t> characters;
  std::string all;
  for (int b = 0; b < 256; ++b) {
    characters.insert(byte_to_character(static_cast<unsigned char>(b)));
    all.push_back(static_cast<char>(b));
  }
  EXPECT_EQ(characters.size(), 256U);
  std::string back = "kept";
  ASSERT_TRUE(append_byte_level(to_byte_level(all), back));
  EXPECT_EQ(back, "kept" + all);
}

TEST(ByteLevelTest, SpellsBytesAsGpt2Does) {
  EXPECT_EQ(to_byte_level(" a\n"),
            "\xC4\xA0"
            "a"
            "\xC4\x8A");  // U+0120, U+010A
  EXPECT_EQ(byte_to_character(0x7F), 0x121U);
  EXPECT_EQ(byte_to_character(0xA0), 0x142U);
  EXPECT_EQ(byte_to_character(0xAD), 0x143U);
  EXPECT_EQ(byte_to_character(0xFF), 0xFFU);
}

TEST(ByteLevelTest, RefusesCharactersOutsideTheAlphabetAndLeavesTheOutputAsItWas) {
  for (const std::string& text :
       {std::string("a b"), std::string("a\xC5\x84"),  // U+0144
        std::string("a\xE2\x96\x81"), std::string("a\xFF"), std::string("a\xC4")}) {
    std::string out = "kept";
    EXPECT_FALSE(append_byte_level(text, out)) << testing::PrintToString(text);
    EXPECT_EQ(out, "kept");
  }
}

}  // namespace
}  // namespace minisgl
