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

}  // namespace
}  // namespace minisgl
