#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/random.h"

namespace minisgl {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

// Several replacement characters, then `rest`.
std::string replaced(int n, std::string_view rest = "") {
  std::string out;
  for (int i = 0; i < n; ++i) out += kFffd;
  out += rest;
  return out;
}

TEST(Utf8Test, EveryScalarValueSurvivesEncodingAndDecoding) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char decoded = decode_utf8(text, 0);
    ASSERT_EQ(decoded.status, Utf8Status::kOk) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.length, text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(decode_utf8(text.substr(0, cut), 0).status, Utf8Status::kTruncated);
      ASSERT_EQ(incomplete_utf8_tail(text.substr(0, cut)), cut);
    }
    ASSERT_EQ(incomplete_utf8_tail(text), 0U);
  }
}

TEST(Utf8Test, SurrogatesAndValuesBeyondUnicodeAreWrittenAsTheReplacementCharacter) {
  for (const char32_t c : {char32_t{0xD800}, char32_t{0xDFFF}, char32_t{0x110000}}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(text, kFffd);
  }
}

// Expected values: the examples of the Unicode standard (section 3.9, tables 3-8 to 3-11), and
// Python's bytes.decode("utf-8", "replace").
TEST(Utf8Test, EachMaximalSubpartBecomesOneReplacementCharacter) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", replaced(8, "A")},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", replaced(8, "A")},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", replaced(5,
                                                        "A\xEF\xBF\xBD\xEF\xBF\xBD"
                                                        "B")},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", replaced(4, "A")},
      {"\xE4\xBD", kFffd},
      {"\xF0\x9F\xAB", kFffd},
      {"a\xC3", "a\xEF\xBF\xBD"},
      {"\xC3\xA9\xC3", "\xC3\xA9\xEF\xBF\xBD"},
      {"", ""},
      {std::string("\0", 1), std::string("\0", 1)},
  };
  for (const auto& [input, expected] : cases) {
    EXPECT_EQ(replace_ill_formed(input), expected) << testing::PrintToString(input);
    EXPECT_EQ(is_valid_utf8(input), input == expected);
  }
}

TEST(Utf8Test, OnlyWhatCanStillBecomeACharacterIsAnIncompleteTail) {
  EXPECT_EQ(incomplete_utf8_tail(""), 0U);
  EXPECT_EQ(incomplete_utf8_tail("abc"), 0U);
  EXPECT_EQ(incomplete_utf8_tail("\xE4\xBD"), 2U);
  EXPECT_EQ(incomplete_utf8_tail("\xE4\xBD\xE4"), 1U);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0U) << "a surrogate's half is wrong already";
  EXPECT_EQ(incomplete_utf8_tail("\x80\x80\x80"), 0U);
  EXPECT_EQ(incomplete_utf8_tail("\xF5"), 0U);
}

TEST(Utf8Test, RandomBytesAreRepairedIntoValidTextThatRepairLeavesAlone) {
  testing_util::Random random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (std::int64_t n = random.below(24); n > 0; --n) {
      const std::int64_t kind = random.below(3);  // ASCII, any byte, mostly lead and trail bytes
      bytes.push_back(static_cast<char>(kind == 0   ? random.below(128)
                                        : kind == 1 ? random.below(256)
                                                    : random.between(0x80, 0xF5)));
    }
    const std::string repaired = replace_ill_formed(bytes);
    ASSERT_TRUE(is_valid_utf8(repaired));
    ASSERT_EQ(replace_ill_formed(repaired), repaired);
    ASSERT_EQ(is_valid_utf8(bytes), repaired == bytes);
    // Holding back the incomplete tail does not change what comes before it.
    const std::size_t tail = incomplete_utf8_tail(bytes);
    const std::string head = bytes.substr(0, bytes.size() - tail);
    std::string joined = replace_ill_formed(head);
    if (tail > 0) joined += kFffd;
    ASSERT_EQ(joined, repaired);
  }
}

}  // namespace
}  // namespace minisgl
