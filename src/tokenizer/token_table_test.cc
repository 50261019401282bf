#include "tokenizer/token_table.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using testing_util::Random;

std::string random_bytes(Random& random, std::int64_t longest, std::int64_t alphabet) {
  std::string bytes;
  for (std::int64_t n = random.between(0, longest); n > 0; --n)
    bytes.push_back(static_cast<char>(random.below(alphabet)));
  return bytes;
}

TEST(TokenTableTest, FindsWhatAMapFindsWithTheFirstIdOfEqualTokens) {
  Random random(3);
  TokenTable table;
  std::map<std::string, TokenId> ids;
  std::map<TokenId, std::string> texts;
  for (TokenId id = 0; id < 20000; ++id) {
    if (random.below(10) == 0) continue;  // a hole
    const std::string bytes = random_bytes(random, 20, id % 2 == 0 ? 3 : 256);
    const bool findable = random.below(5) != 0;
    table.add(id, bytes, findable);
    texts[id] = bytes;
    if (findable) ids.emplace(bytes, id);
  }
  for (TokenId id = 0; id < table.size(); ++id) {
    const auto text = texts.find(id);
    ASSERT_EQ(table.contains(id), text != texts.end());
    ASSERT_EQ(table.bytes(id), text != texts.end() ? text->second : "");
  }
  for (const auto& [bytes, id] : ids) ASSERT_EQ(table.find(bytes), id);
  for (int i = 0; i < 20000; ++i) {
    const std::string bytes = random_bytes(random, 12, 4);
    const auto expected = ids.find(bytes);
    ASSERT_EQ(table.find(bytes), expected == ids.end() ? kNoToken : expected->second);
  }
}

TEST(TokenTableTest, IdsThatWereNotAddedAreEmptyAndNothingIsFoundInAnEmptyTable) {
  TokenTable table;
  EXPECT_EQ(table.find("a"), kNoToken);
  EXPECT_EQ(table.size(), 0);
  table.add(5, "a", /*findable=*/true);
  EXPECT_EQ(table.size(), 6);
  for (const TokenId id : {-1, 0, 4, 6, 1 << 30}) {
    EXPECT_EQ(table.bytes(id), "");
    EXPECT_FALSE(table.contains(id));
  }
}

TEST(MergeTableTest, FindsWhatAMapFindsWithTheLastOfEqualPairs) {
  Random random(4);
  constexpr int kMerges = 50000;
  MergeTable table(kMerges);
  std::map<std::pair<TokenId, TokenId>, Merge> merges;
  for (int i = 0; i < kMerges; ++i) {
    const auto left = static_cast<TokenId>(random.below(300));
    const auto right = static_cast<TokenId>(random.below(300));
    const Merge merge{static_cast<std::uint32_t>(i), static_cast<TokenId>(random.below(1 << 20))};
    table.add(left, right, merge);
    merges[{left, right}] = merge;
  }
  EXPECT_EQ(table.size(), merges.size());
  for (TokenId left = 0; left < 310; ++left) {
    for (TokenId right = 0; right < 310; ++right) {
      const auto expected = merges.find({left, right});
      const MergeTable::Found found = table.find(left, right);
      ASSERT_EQ(found.rank, expected == merges.end() ? Merge::kNoRank : expected->second.rank);
      if (expected == merges.end()) continue;
      ASSERT_EQ(table.merged(found), expected->second.merged);
    }
  }
}

TEST(MergeTableTest, RefusesWhatItsSlotsCannotHold) {
  MergeTable table(10);
  constexpr auto kLargest = static_cast<TokenId>(MergeTable::kMaxId);
  table.add(kLargest, kLargest, {MergeTable::kMaxRank, 5});
  EXPECT_EQ(table.find(kLargest, kLargest).rank, MergeTable::kMaxRank);
  EXPECT_EQ(table.merged(table.find(kLargest, kLargest)), 5);
  EXPECT_EQ(table.find(kLargest, 0).rank, Merge::kNoRank);
  const auto error_of = [&](TokenId left, std::uint32_t rank) -> std::string {
    try {
      table.add(left, 0, {rank, 0});
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  const std::string refused =
      "a vocabulary with merges of token ids above 2097150, or with more than 4194303 merges, is "
      "not supported";
  EXPECT_EQ(error_of(kLargest + 1, 0), refused);
  EXPECT_EQ(error_of(0, MergeTable::kMaxRank + 1), refused);
}

TEST(TokenTableTest, ATokenThatIsGivenOtherBytesIsNotFoundByItsOldOnes) {
  TokenTable table;
  for (TokenId id = 0; id < 100; ++id) table.add(id, std::to_string(id), /*findable=*/true);
  table.add(7, "seven", /*findable=*/true);
  table.add(8, "eight", /*findable=*/false);
  EXPECT_EQ(table.find("7"), kNoToken);
  EXPECT_EQ(table.find("seven"), 7);
  EXPECT_EQ(table.find("8"), kNoToken);
  EXPECT_EQ(table.find("eight"), kNoToken);
  for (TokenId id = 9; id < 100; ++id) EXPECT_EQ(table.find(std::to_string(id)), id);
  table.add(200, "7", /*findable=*/true);
  EXPECT_EQ(table.find("7"), 200);
}

}  // namespace
}  // namespace minisgl
