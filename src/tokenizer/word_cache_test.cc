#include "tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "testing/random.h"

namespace minisgl {
namespace {

using Ids = std::vector<TokenId>;
using Cache = ShortWordCache;
using testing_util::Random;

Ids find(const Cache& cache, const std::string& word) {
  std::array<TokenId, Cache::kMaxTokens> out{};
  const std::size_t count = cache.find(Cache::make_key(word, word.size()), out.data());
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
}
void put(Cache& cache, const std::string& word, const Ids& ids) {
  cache.put(Cache::make_key(word, word.size()), ids);
}

TEST(WordCacheTest, WhatItGivesIsWhatTheWordWasLastPutWith) {
  Cache cache;
  std::map<std::string, Ids> model;
  Random random(3);
  int found = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string word(static_cast<std::size_t>(random.between(1, 15)), '\0');
    for (char& c : word) c = static_cast<char>(random.below(2));  // zero bytes as well
    const Ids got = find(cache, word);
    if (!got.empty()) {
      ++found;
      ASSERT_EQ(got, model.at(word));
    }
    Ids ids;
    for (std::int64_t n = random.between(1, 4); n > 0; --n)
      ids.push_back(static_cast<TokenId>(random.below(1 << 20)));
    put(cache, word, ids);
    model[word] = ids;
    ASSERT_EQ(find(cache, word), ids);
  }
  EXPECT_GT(found, 50'000);
}

TEST(WordCacheTest, KeepsNoWordWithoutTokensOrWithTooMany) {
  Cache cache;
  put(cache, "none", {});
  put(cache, "five", {1, 2, 3, 4, 5});
  EXPECT_EQ(find(cache, "none"), Ids());
  EXPECT_EQ(find(cache, "five"), Ids());
}

TEST(WordCacheTest, BytesBehindTheWordDoNotCount) {
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  for (std::size_t size = 1; size <= Cache::kMaxBytes; ++size) {
    const std::string word = text.substr(0, size);
    const auto inside = Cache::make_key(std::string_view(text).substr(0, size), text.size());
    const auto alone = Cache::make_key(word, word.size());
    EXPECT_EQ(inside, alone);
  }
}

}  // namespace
}  // namespace minisgl
