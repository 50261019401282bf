#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "testing/random.h"

namespace minisgl {
namespace {

using Ids = std::vector<TokenId>;
using testing_util::Random;

// A vocabulary of texts (id = index) and of merges "a b" (rank = index).
BpeVocabulary make_vocabulary(const std::vector<std::string>& tokens,
                              const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeVocabulary vocabulary;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    vocabulary.tokens.add(static_cast<TokenId>(i), tokens[i], /*findable=*/true);
    if (tokens[i].size() == 1)
      vocabulary.byte_tokens[static_cast<unsigned char>(tokens[i][0])] = static_cast<TokenId>(i);
  }
  vocabulary.merges = MergeTable(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    vocabulary.merges.add(vocabulary.tokens.find(left), vocabulary.tokens.find(right),
                          {static_cast<std::uint32_t>(i), vocabulary.tokens.find(left + right)});
  }
  return vocabulary;
}

Ids encode(const Bpe& bpe, std::string_view word) {
  BpeScratch scratch;
  Ids ids;
  bpe.encode(word, scratch, ids);
  return ids;
}

TEST(BpeTest, MergesByRankAndNotByLength) {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "bc", "abc"};
  EXPECT_EQ(encode(Bpe(make_vocabulary(tokens, {{"a", "b"}, {"b", "c"}})), "abc"), (Ids{3, 2}));
  EXPECT_EQ(encode(Bpe(make_vocabulary(tokens, {{"b", "c"}, {"a", "b"}})), "abc"), (Ids{0, 4}));
  EXPECT_EQ(encode(Bpe(make_vocabulary(tokens, {{"b", "c"}, {"a", "bc"}})), "abc"), (Ids{5}));
}

TEST(BpeTest, AWordThatIsATokenIsThatTokenOnlyIfMergesLeadThereOrAreIgnored) {
  BpeVocabulary vocabulary = make_vocabulary({"a", "b", "c", "ab", "bc", "abc"}, {{"b", "c"}});
  EXPECT_EQ(encode(Bpe(make_vocabulary({"a", "b", "c", "ab", "bc", "abc"}, {{"b", "c"}})), "abc"),
            (Ids{0, 4}));
  vocabulary.ignore_merges = true;
  vocabulary.control = {3};
  const Bpe bpe(std::move(vocabulary));
  EXPECT_EQ(encode(bpe, "abc"), (Ids{5}));
  EXPECT_EQ(encode(bpe, "ab"), (Ids{0, 1})) << "a control token is never made from text";
}

TEST(BpeTest, BytesWithoutATokenAreDroppedAndTheirNeighboursMerge) {
  const Bpe bpe(make_vocabulary({"a", "b", "ab"}, {{"a", "b"}}));
  EXPECT_EQ(encode(bpe, "a?b"), (Ids{2}));
  EXPECT_EQ(encode(bpe, "??"), (Ids{}));
  EXPECT_EQ(encode(bpe, ""), (Ids{}));
}

TEST(BpeTest, UnknownBytesBecomeTheUnknownTokenEachOrTogether) {
  BpeVocabulary vocabulary = make_vocabulary({"a", "b", "<unk>"}, {});
  vocabulary.unknown = 2;
  EXPECT_EQ(encode(Bpe(std::move(vocabulary)), "a??b?"), (Ids{0, 2, 2, 1, 2}));
  vocabulary = make_vocabulary({"a", "b", "<unk>"}, {});
  vocabulary.unknown = 2;
  vocabulary.fuse_unknown = true;
  EXPECT_EQ(encode(Bpe(std::move(vocabulary)), "a??b?"), (Ids{0, 2, 1, 2}));
}

TEST(BpeTest, CharactersWithoutATokenFallBackToTheirBytesOrToUnknown) {
  const auto make = [] {
    BpeVocabulary vocabulary = make_vocabulary({"<unk>", "a", "\xC3\xA9", "<0xC3>", "<0xA8>"}, {});
    vocabulary.starts_as_bytes = false;
    vocabulary.unknown = 0;
    vocabulary.byte_tokens[0xC3] = 3;
    vocabulary.byte_tokens[0xA8] = 4;
    return vocabulary;
  };
  const Bpe bpe(make());
  EXPECT_EQ(encode(bpe, "a\xC3\xA9"), (Ids{1, 2}));
  EXPECT_EQ(encode(bpe, "a\xC3\xA8"), (Ids{1, 3, 4}));
  EXPECT_EQ(encode(bpe, "a\xC3\xA7"), (Ids{1, 0})) << "one byte of the two has no token";
}

// Oracle: the definition itself: find the pair of lowest rank, leftmost of several, join it.
Ids merge_naively(Ids ids, const MergeTable& merges) {
  while (true) {
    std::size_t best = ids.size();
    MergeTable::Found best_merge;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeTable::Found merge = merges.find(ids[i], ids[i + 1]);
      if (merge.rank < best_merge.rank) {
        best = i;
        best_merge = merge;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.merged(best_merge);
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// A vocabulary over `letters` letters, grown as training would, in a random order of merges.
BpeVocabulary random_vocabulary(Random& random, int letters, int merges) {
  std::vector<std::string> tokens;
  for (int i = 0; i < letters; ++i) tokens.emplace_back(1, static_cast<char>('a' + i));
  std::vector<std::pair<std::string, std::string>> pairs;
  while (static_cast<int>(pairs.size()) < merges) {
    const auto pick = [&] {
      return tokens[static_cast<std::size_t>(
          random.below(static_cast<std::int64_t>(tokens.size())))];
    };
    const std::string left = pick(), right = pick();
    if (left.size() + right.size() > 12) continue;
    if (std::ranges::find(tokens, left + right) == tokens.end()) tokens.push_back(left + right);
    pairs.emplace_back(left, right);
  }
  for (std::size_t i = pairs.size(); i > 1; --i)
    std::swap(pairs[i - 1],
              pairs[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  return make_vocabulary(tokens, pairs);
}

TEST(BpeTest, RandomWordsOfAllLengthsMergeAsTheDefinitionSays) {
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    const int letters = static_cast<int>(random.between(1, 5));
    const Bpe bpe(random_vocabulary(random, letters, static_cast<int>(random.between(1, 60))));
    for (int i = 0; i < 60; ++i) {
      // Below and above the length where the method changes.
      const std::int64_t length = i % 3 == 0 ? random.between(50, 400) : random.between(0, 40);
      std::string word;
      for (std::int64_t n = 0; n < length; ++n)
        word.push_back(static_cast<char>('a' + random.below(letters)));
      Ids symbols;
      for (const char c : word)
        symbols.push_back(bpe.vocabulary().byte_tokens[static_cast<unsigned char>(c)]);
      ASSERT_EQ(encode(bpe, word), merge_naively(symbols, bpe.vocabulary().merges)) << word;
    }
  }
}

TEST(BpeTest, OneWordOfAMillionBytesTakesLessThanASecond) {
  std::vector<std::string> tokens = {"a"};
  std::vector<std::pair<std::string, std::string>> merges;
  for (int i = 0; i < 6; ++i) {
    merges.emplace_back(tokens.back(), tokens.back());
    tokens.push_back(tokens.back() + tokens.back());
  }
  const Bpe bpe(make_vocabulary(tokens, merges));
  const std::string word(1 << 20, 'a');
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = encode(bpe, word);
  const auto time = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(ids, Ids((1 << 20) / 64, 6));
  EXPECT_LT(time, std::chrono::seconds(10)) << "the goal is 1; this leaves room for slow machines";
}

TEST(BpeTest, ThreadsThatShareItAgree) {
  Random random(5);
  const Bpe bpe(random_vocabulary(random, 3, 50));
  std::vector<std::string> words;
  for (int i = 0; i < 500; ++i) {
    std::string word;
    for (std::int64_t n = random.between(1, 9); n > 0; --n)
      word.push_back(static_cast<char>('a' + random.below(3)));
    words.push_back(word);
  }
  std::vector<std::vector<Ids>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (const std::string& word : words) result.push_back(encode(bpe, word));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

}  // namespace
}  // namespace minisgl
