#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "minisgl/error.h"
#include "tokenizer/unicode.h"

namespace minisgl {
namespace {

std::vector<std::string> all_matches(const Regex& regex, std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t from = 0; from < text.size();) {
    const auto match = regex.find(text, from);
    if (!match) break;
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    from = std::max(match->end, from + 1);
  }
  return found;
}

using Strings = std::vector<std::string>;

TEST(RegexTest, FindsMatchesOfUnicodeClassesAndLookAhead) {
  EXPECT_EQ(all_matches(Regex(R"(\p{L}+)"), "ab 1\xC3\xA9\xE4\xB8\x96!"),
            (Strings{"ab", "\xC3\xA9\xE4\xB8\x96"}));
  EXPECT_EQ(all_matches(Regex(R"(\s+(?!\S)|\s)"), "a   b "), (Strings{"  ", " ", " "}));
  EXPECT_EQ(all_matches(Regex(R"((?i:'s|'ll))"), "'S 'lL 's"), (Strings{"'S", "'lL", "'s"}));
  EXPECT_FALSE(Regex("x").find("abc", 0));
}

TEST(RegexTest, WhiteSpaceIsThatOfUnicodeInsideAndOutsideClasses) {
  const Regex space(R"(\s)"), in_class(R"([x\s])"), not_space(R"(\S)"), not_in_class(R"([^\s])"),
      not_space_in_class(R"([x\S])");
  for (char32_t c = 0; c < 0x11000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const bool expected = is_white_space(c);
    ASSERT_EQ(space.find(text, 0).has_value(), expected) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(in_class.find(text, 0).has_value(), expected || c == 'x');
    ASSERT_EQ(not_space.find(text, 0).has_value(), !expected);
    ASSERT_EQ(not_in_class.find(text, 0).has_value(), !expected);
    ASSERT_EQ(not_space_in_class.find(text, 0).has_value(), !expected);
  }
}

TEST(RegexTest, ALiteralMatchesItselfAlone) {
  for (const std::string& text :
       {std::string("a.b*c"), std::string("[^\\s]+"), std::string("\n\t "),
        std::string("\xE2\x96\x81"), std::string("a\0b", 3)}) {
    std::string around = "_";
    around.append(text).append("_");
    const auto match = Regex::literal(text).find(around, 0);
    ASSERT_TRUE(match) << testing::PrintToString(text);
    EXPECT_EQ(match->begin, 1U);
    EXPECT_EQ(match->end, 1 + text.size());
  }
  EXPECT_FALSE(Regex::literal("a.b").find("axb", 0));
}

TEST(RegexTest, ClassesMayBeginWithABracketAndContainNamedSets) {
  EXPECT_EQ(all_matches(Regex("[]a]+"), "b]a["), (Strings{"]a"}));
  EXPECT_EQ(all_matches(Regex("[^]a]+"), "]ab"), (Strings{"b"}));
  EXPECT_EQ(all_matches(Regex("[[:digit:]x]+"), "ab1x2"), (Strings{"1x2"}));
  EXPECT_EQ(all_matches(Regex(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]+)"), "a[\\]-b"),
            (Strings{"[\\]-"}));
}

TEST(RegexTest, WhatPcreReadsInAnotherWayIsRefusedByName) {
  const auto error_of = [](std::string_view pattern) -> std::string {
    try {
      const Regex regex(pattern);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(R"([\p{L}&&[^a]])"),
            R"(regular expression '[\p{L}&&[^a]]': && in a character class is not supported)");
  EXPECT_NE(error_of("[a[bc]]").find("a character class inside another"), std::string::npos);
  EXPECT_NE(error_of(R"(\h+)").find("\\h (a hexadecimal digit)"), std::string::npos);
  EXPECT_NE(error_of(R"(\p{N}{1,3}+)").find("{n,m}+ is not supported"), std::string::npos);
  EXPECT_NE(error_of("a(b").find("regular expression 'a(b': missing closing parenthesis"),
            std::string::npos);
  EXPECT_EQ(error_of(R"(\p{L}++ ?+)"), "no error") << "possessive in both dialects";
}

TEST(RegexTest, CodePointsMayBeWrittenInHexadecimal) {
  EXPECT_EQ(all_matches(Regex(R"([\u3040-\u309F]+|\u00e9)"), "a\xE3\x81\x82\xE3\x81\x84 \xC3\xA9"),
            (Strings{"\xE3\x81\x82\xE3\x81\x84", "\xC3\xA9"}));
  EXPECT_THROW(Regex(R"(\u30)"), Error);
}

TEST(RegexTest, AMegabyteOfSpacesIsOneMatch) {
  const std::string spaces(1 << 20, ' ');
  const auto match = Regex(R"(\s*[\r\n]+|\s+(?!\S)|\s+)").find(spaces, 0);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->end, spaces.size());
}

}  // namespace
}  // namespace minisgl
