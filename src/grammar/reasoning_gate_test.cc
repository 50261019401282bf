#include "grammar/reasoning_gate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/tokenizer_for_test.h"

namespace minisgl {
namespace {

using testing_util::ListTokenizer;

// Ids beyond the tokenizer's that the model's logits have.
constexpr std::int32_t kPadding = 5;

class ReasoningGateTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Grammars::built()) GTEST_SKIP() << "this build has no constrained output";
  }
  // What follows an answer that is "yes" or "no".
  ReasoningGate gate(bool in_reasoning) {
    const std::vector<TokenId> ends{tokenizer_.end_id()};
    return {
        grammars_.constraint({.kind = ResponseFormat::Kind::kChoice, .text = R"(["yes","no"])"}),
        ReasoningTokens::of(tokenizer_, vocab_size_, ends, "<think>", "</think>"), in_reasoning};
  }
  TokenId id(const std::string& token) const { return *tokenizer_.token_to_id(token); }
  std::vector<TokenId> allowed(ReasoningGate& gate) const {
    std::vector<std::int32_t> mask(static_cast<std::size_t>((vocab_size_ + 31) / 32), 0);
    EXPECT_TRUE(gate.fill(mask));
    std::vector<TokenId> ids;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(mask.size()) * 32; ++i)
      if ((static_cast<std::uint32_t>(mask[static_cast<std::size_t>(i / 32)]) >> (i % 32) & 1) != 0)
        ids.push_back(i);
    return ids;
  }
  bool accepts(ReasoningGate& gate, const std::string& text) const {
    for (const char c : text)
      if (!gate.accept(static_cast<unsigned char>(c))) return false;
    return true;
  }

  ListTokenizer tokenizer_ = ListTokenizer::of_bytes({"<think>", "</think>", "k>\n", "k>x"});
  std::int32_t vocab_size_ = tokenizer_.vocab_size() + kPadding;
  Grammars grammars_{tokenizer_, {.vocab_size = vocab_size_, .end_ids = {tokenizer_.end_id()}}};
};

TEST_F(ReasoningGateTest, TheFirstTokenSaysWhetherThereIsReasoning) {
  ReasoningGate thinks = gate(/*in_reasoning=*/false);
  EXPECT_EQ(allowed(thinks), (std::vector<TokenId>{'n', 'y', id("<think>")}));
  EXPECT_TRUE(thinks.accept(id("<think>")));
  EXPECT_TRUE(accepts(thinks, "no, <wait>\n"));
  EXPECT_TRUE(thinks.accept(id("</think>")));
  EXPECT_EQ(allowed(thinks), (std::vector<TokenId>{'n', 'y'}));
  EXPECT_TRUE(accepts(thinks, "yes"));
  EXPECT_EQ(allowed(thinks), (std::vector<TokenId>{tokenizer_.end_id()}));
  EXPECT_TRUE(thinks.accept(tokenizer_.end_id()));
  EXPECT_TRUE(thinks.finished());

  ReasoningGate answers = gate(/*in_reasoning=*/false);
  EXPECT_TRUE(answers.accept('n'));
  EXPECT_EQ(allowed(answers), (std::vector<TokenId>{'o'}));
  EXPECT_FALSE(answers.accept(id("<think>")));
}

TEST_F(ReasoningGateTest, ReasoningIsAnyTextAndNoAnswerEndsInIt) {
  ReasoningGate gate = this->gate(/*in_reasoning=*/true);
  std::vector<TokenId> all;
  for (TokenId i = 0; i < tokenizer_.vocab_size(); ++i)
    if (!tokenizer_.is_special(i)) all.push_back(i);
  EXPECT_EQ(allowed(gate), all) << "neither special tokens nor padding";
  EXPECT_TRUE(accepts(gate, "hm"));
  EXPECT_EQ(allowed(gate), all);
  EXPECT_FALSE(gate.finished());
}

TEST_F(ReasoningGateTest, TheEndMayBeSpeltBySeveralTokens) {
  ReasoningGate gate = this->gate(/*in_reasoning=*/true);
  EXPECT_TRUE(accepts(gate, "hm, </thin, </thin"));
  EXPECT_TRUE(gate.accept(id("k>\n")));
  EXPECT_EQ(allowed(gate), (std::vector<TokenId>{'n', 'y'}));

  ReasoningGate unseen = this->gate(/*in_reasoning=*/true);
  EXPECT_TRUE(accepts(unseen, "</thin"));
  EXPECT_FALSE(unseen.accept(id("k>x"))) << "the x would be part of the answer";
}

TEST_F(ReasoningGateTest, TheTagsHaveToBeTokensThatAreText) {
  const std::vector<TokenId> ends{tokenizer_.end_id()};
  const auto usable = [&](const char* begin, const char* end) {
    return ReasoningTokens::of(tokenizer_, vocab_size_, ends, begin, end) != nullptr;
  };
  EXPECT_TRUE(usable("<think>", "</think>"));
  EXPECT_FALSE(usable("<think>", "</reason>"));
  EXPECT_FALSE(usable("<a>", "<b>")) << "special tokens";
}

}  // namespace
}  // namespace minisgl
