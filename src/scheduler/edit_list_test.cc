#include "scheduler/edit_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "testing/random.h"

namespace minisgl {
namespace {

using testing_util::Random;

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::map<TokenId, TokenEdit> by_token(std::span<const TokenEdit> edits) {
  std::map<TokenId, TokenEdit> result;
  for (const TokenEdit& edit : edits)
    EXPECT_TRUE(result.emplace(edit.token, edit).second) << "token " << edit.token << " twice";
  return result;
}

TEST(EditListTest, ARequestThatAsksForNothingNeedsNone) {
  EXPECT_FALSE(EditList::is_needed({.temperature = 1, .top_p = 0.5, .num_logprobs = 3}));
  EXPECT_TRUE(EditList::is_needed({.presence_penalty = 0.5}));
  EXPECT_TRUE(EditList::is_needed({.frequency_penalty = -0.5}));
  EXPECT_TRUE(EditList::is_needed({.repetition_penalty = 1.1}));
  EXPECT_TRUE(EditList::is_needed({.logit_bias = {{3, 1}}}));
  EXPECT_TRUE(EditList::is_needed({.min_tokens = 1}));
}

TEST(EditListTest, EndTokensAreForbiddenUntilTheAnswerIsLongEnoughAndThenFree) {
  const std::vector<TokenId> end_ids = {5, 9, 5, 1000, -1};
  EditList list({.min_tokens = 2}, {.prompt = {}, .end_ids = end_ids, .vocab_size = 100});
  EXPECT_FALSE(list.follows_tokens());
  for (const std::int64_t position : {0, 1}) {
    const auto edits = by_token(list.before(position));
    ASSERT_EQ(edits.size(), 2U);  // what the vocabulary does not have is left out
    EXPECT_EQ(edits.at(5).bias, kNever);
    EXPECT_EQ(edits.at(9).bias, kNever);
  }
  EXPECT_TRUE(list.before(2).empty());
}

TEST(EditListTest, AnEndTokenGetsItsBiasBackWhenItMayCome) {
  const std::vector<TokenId> end_ids = {5};
  EditList list({.logit_bias = {{5, 2.5}, {7, -1}}, .min_tokens = 1},
                {.prompt = {}, .end_ids = end_ids, .vocab_size = 100});
  EXPECT_EQ(by_token(list.before(0)).at(5).bias, kNever);
  EXPECT_EQ(by_token(list.before(0)).at(7).bias, -1);
  EXPECT_EQ(by_token(list.before(1)).at(5).bias, 2.5);
}

TEST(EditListTest, ThePromptCountsForRepetitionOnly) {
  const std::vector<TokenId> prompt = {1, 2, 1};
  EditList presence({.presence_penalty = 1}, {.prompt = prompt, .end_ids = {}, .vocab_size = 100});
  EXPECT_TRUE(presence.before(0).empty());
  EditList repetition({.repetition_penalty = 2},
                      {.prompt = prompt, .end_ids = {}, .vocab_size = 100});
  const auto edits = by_token(repetition.before(0));
  ASSERT_EQ(edits.size(), 2U);
  EXPECT_TRUE(edits.at(1).is_seen);
  EXPECT_EQ(edits.at(1).count, 0);
}

TEST(EditListTest, CountsEqualThoseOfTheWholeHistory) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<TokenId> prompt, answer;
    for (std::int64_t i = random.below(40); i > 0; --i)
      prompt.push_back(static_cast<TokenId>(random.below(30)));
    SamplingParams sampling{.frequency_penalty = 0.5, .repetition_penalty = 1.5};
    sampling.logit_bias = {{3, 1}, {29, -1}};
    sampling.min_tokens = random.below(10);
    const std::vector<TokenId> end_ids = {3, 4};
    EditList list(sampling, {.prompt = prompt, .end_ids = end_ids, .vocab_size = 30});
    EXPECT_TRUE(list.follows_tokens());
    for (std::int64_t position = 0; position < 60; ++position) {
      const auto edits = by_token(list.before(position));
      for (TokenId id = 0; id < 30; ++id) {
        const auto found = edits.find(id);
        const TokenEdit edit = found == edits.end() ? TokenEdit{.token = id} : found->second;
        const auto in_answer = std::count(answer.begin(), answer.end(), id);
        const auto in_prompt = std::count(prompt.begin(), prompt.end(), id);
        EXPECT_EQ(edit.count, in_answer);
        EXPECT_EQ(edit.is_seen, in_answer + in_prompt > 0);
        float bias = id == 3 ? 1.0F : id == 29 ? -1.0F : 0.0F;
        if (position < sampling.min_tokens && (id == 3 || id == 4)) bias = kNever;
        EXPECT_EQ(edit.bias, bias);
      }
      answer.push_back(static_cast<TokenId>(random.below(30)));
      list.add(answer.back());
    }
  }
}

}  // namespace
}  // namespace minisgl
