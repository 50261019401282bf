#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "testing/random.h"
#include "tokenizer/bpe_tokenizer.h"

namespace minisgl {
namespace {

using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

// Ids 0 to 255 are the bytes; 256 a special token, 257 an added one that is not special, 258 a
// token of a character's second half and a letter.
BpeTokenizer byte_tokenizer(bool strip_leading_space = false) {
  BpeTokenizerParts parts;
  TokenTable& tokens = parts.vocabulary.tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const auto c = static_cast<char>(byte);
    tokens.add(byte, {&c, 1}, /*findable=*/true);
    parts.vocabulary.byte_tokens[static_cast<std::size_t>(byte)] = byte;
  }
  parts.added = {{.id = 256, .content = "<|end|>", .special = true},
                 {.id = 257, .content = "<think>"}};
  for (const AddedToken& token : parts.added) tokens.add(token.id, token.content, false);
  tokens.add(258, "\xA9z", /*findable=*/true);
  parts.strip_leading_space = strip_leading_space;
  return BpeTokenizer(std::move(parts));
}

Strings stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = true) {
  IncrementalDetokenizer detokenizer(tokenizer, skip_special);
  Strings pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.push(id));
  pieces.push_back(detokenizer.flush());
  return pieces;
}

TEST(DetokenizerTest, ACharacterSpreadOverTokensComesWithItsLastByte) {
  const BpeTokenizer tokenizer = byte_tokenizer();
  EXPECT_EQ(stream(tokenizer, tokenizer.encode("a🫠b")), (Strings{"a", "", "", "", "🫠", "b", ""}));
  EXPECT_EQ(stream(tokenizer, {0xC3, 258}), (Strings{"", "éz", ""}));
}

TEST(DetokenizerTest, AnUnfinishedCharacterAtTheEndIsOneReplacementCharacter) {
  EXPECT_EQ(stream(byte_tokenizer(), {'A', ' ', 0xF0, 0x9F, 0xAB}),
            (Strings{"A", " ", "", "", "", "\xEF\xBF\xBD"}));
}

TEST(DetokenizerTest, AnIllFormedSequenceIsReplacedAsSoonAsItIsCertain) {
  EXPECT_EQ(stream(byte_tokenizer(), {0xC3, 'y'}), (Strings{"", "\xEF\xBF\xBDy", ""}));
  EXPECT_EQ(stream(byte_tokenizer(), {0xFF, 0x80}), (Strings{"\xEF\xBF\xBD", "\xEF\xBF\xBD", ""}));
}

TEST(DetokenizerTest, SpecialTokensAndIdsWithoutATokenGiveNothing) {
  const BpeTokenizer tokenizer = byte_tokenizer();
  EXPECT_EQ(stream(tokenizer, {'a', 256, 257, 'b', 1000, -1}),
            (Strings{"a", "", "<think>", "b", "", "", ""}));
  EXPECT_EQ(stream(tokenizer, {'a', 256}, /*skip_special=*/false), (Strings{"a", "<|end|>", ""}));
  EXPECT_EQ(tokenizer.decode(Ids{'a', 256, 1000, -1, 'b'}, /*skip_special=*/true), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 256, 'b'}, /*skip_special=*/false), "a<|end|>b");
}

TEST(DetokenizerTest, OneSpaceIsTakenFromTheStartOnceWhereTheVocabularyPutsItThere) {
  const BpeTokenizer tokenizer = byte_tokenizer(/*strip_leading_space=*/true);
  EXPECT_EQ(stream(tokenizer, {256, ' ', ' ', 'a', ' ', 'b'}),
            (Strings{"", "", " ", "a", " ", "b", ""}));
  EXPECT_EQ(stream(tokenizer, {'a', ' ', 'b'}), (Strings{"a", " ", "b", ""}));
}

TEST(DetokenizerTest, WhateverTheIdsPiecesAreValidAndJoinToTheWhole) {
  testing_util::Random random(21);
  for (const bool strip : {false, true}) {
    const BpeTokenizer tokenizer = byte_tokenizer(strip);
    for (int round = 0; round < 5000; ++round) {
      Ids ids;
      for (std::int64_t n = random.below(16); n > 0; --n)
        ids.push_back(static_cast<TokenId>(random.below(2) == 0 ? random.below(262)
                                                                : random.between(0x80, 0xF5)));
      for (const bool skip : {false, true}) {
        std::string joined;
        for (const std::string& piece : stream(tokenizer, ids, skip)) {
          ASSERT_TRUE(is_valid_utf8(piece));
          joined += piece;
        }
        ASSERT_EQ(joined, tokenizer.decode(ids, skip));
      }
    }
  }
}

}  // namespace
}  // namespace minisgl
