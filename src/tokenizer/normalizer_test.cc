#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl {
namespace {

TEST(NormalizerTest, StepsFollowEachOtherAndUnchangedTextIsNotCopied) {
  const Normalizer normalizer(
      {Normalizer::Nfc{}, Normalizer::Prepend{"_"}, Normalizer::Replace{" ", "__"}});
  std::string buffer;
  EXPECT_EQ(normalizer.apply("e\xCC\x81 b", buffer), "_\xC3\xA9__b");
  EXPECT_EQ(normalizer.apply("", buffer), "") << "nothing is put in front of nothing";
  const std::string plain = "abc";
  EXPECT_EQ(Normalizer().apply(plain, buffer).data(), plain.data());
  EXPECT_EQ(Normalizer({Normalizer::Replace{"x", "y"}}).apply(plain, buffer).data(), plain.data());
}

TEST(NormalizerTest, ReplacementsDoNotOverlapAndAreNotReplacedAgain) {
  std::string buffer;
  EXPECT_EQ(Normalizer({Normalizer::Replace{"aa", "a"}}).apply("aaaaa", buffer), "aaa");
  EXPECT_EQ(Normalizer({Normalizer::Replace{"a", "aa"}}).apply("aba", buffer), "aabaa");
}

// Expected: Python's unicodedata.normalize().
TEST(NormalizerTest, AllFormsOfUnicode) {
  using Kind = Normalizer::Form::Kind;
  std::string buffer;
  const std::string text = "\xC3\xA9 \xEF\xAC\x81 \xEF\xBC\xA1";  // e acute, fi ligature, wide A
  EXPECT_EQ(Normalizer({Normalizer::Form{Kind::kNfd}}).apply(text, buffer),
            "e\xCC\x81 \xEF\xAC\x81 \xEF\xBC\xA1");
  EXPECT_EQ(Normalizer({Normalizer::Form{Kind::kNfkc}}).apply(text, buffer), "\xC3\xA9 fi A");
  EXPECT_EQ(Normalizer({Normalizer::Form{Kind::kNfkd}}).apply(text, buffer), "e\xCC\x81 fi A");
}

TEST(NormalizerTest, MatchesOfAPatternAreReplacedUnlessTheyAreEmpty) {
  std::string buffer;
  const auto replace = [&](const char* pattern, const char* text) {
    return Normalizer({Normalizer::ReplaceMatches{Regex(pattern), "-"}}).apply(text, buffer);
  };
  EXPECT_EQ(replace(" {2,}", "a  b   c d"), "a-b-c d");
  EXPECT_EQ(replace("x*", "\xC3\xA9xxb"), "\xC3\xA9-b");
  EXPECT_EQ(replace("a", "aaa"), "---");
  EXPECT_EQ(replace("z", "abc"), "abc");
}

}  // namespace
}  // namespace minisgl
