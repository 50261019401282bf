#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "testing/random.h"
#include "tokenizer/gguf_vocabulary.h"

namespace minisgl {
namespace {

using Strings = std::vector<std::string>;
using Metaspace = PreTokenizer::Metaspace;

Strings split(const PreTokenizer& steps, std::string_view text, bool at_start = true) {
  PreTokenizer::Pieces out;
  steps.run(text, at_start, out);
  Strings pieces;
  for (const TextRange piece : out.pieces)
    pieces.emplace_back(out.text.substr(piece.begin, piece.end - piece.begin));
  return pieces;
}

// The expected pieces of this file are those of Hugging Face tokenizers.

TEST(PreTokenizerTest, Qwen2SplitsCodeDigitsContractionsAndWhiteSpaceAsPublished) {
  const GgufPreTokenizer qwen2 = gguf_pre_tokenizer("qwen2");
  const std::vector<std::pair<std::string, Strings>> cases = {
      {"tel 20260131!", {"tel", " ", "2", "0", "2", "6", "0", "1", "3", "1", "!"}},
      {"foo->bar();\r\n\r\n", {"foo", "->", "bar", "();\r\n\r\n"}},
      {"I'M sure they'LL", {"I", "'M", " sure", " they", "'LL"}},
      {"x \n\n  y", {"x", " \n\n", " ", " y"}},
      {"\t\tif x:\n\t\t\treturn", {"\t", "\tif", " x", ":\n", "\t\t", "\treturn"}},
      {"   x", {"  ", " x"}},
      {"end   ", {"end", "   "}},
      {"½²Ⅷ①", {"½", "²", "Ⅷ", "①"}},
      {"don’t", {"don", "’t"}},
      {"กิน", {"ก", "ิน"}},
      {"\xE2\x80\xA9 ꏤ", {"\xE2\x80\xA9", " ꏤ"}},
      {"it'ſ", {"it", "'ſ"}},
      {"a\xE1\xA0\x8E"
       "b",
       {"a",
        "\xE1\xA0\x8E"
        "b"}},
      {"\x1C x", {"\x1C", " x"}},
      {"\xC2\x85"
       "a",
       {"\xC2\x85"
        "a"}},
  };
  for (const auto& [text, pieces] : cases) EXPECT_EQ(split(qwen2.steps, text), pieces) << text;
  std::string buffer;
  EXPECT_EQ(qwen2.normalizer.apply("e\xCC\x81", buffer), "é");
}

TEST(PreTokenizerTest, Llama3SplitsDigitsInThrees) {
  const GgufPreTokenizer llama3 = gguf_pre_tokenizer("llama-bpe");
  EXPECT_EQ(split(llama3.steps, "in 1999, pi=3.14159"),
            (Strings{"in", " ", "199", "9", ",", " pi", "=", "3", ".", "141", "59"}));
  EXPECT_EQ(split(llama3.steps, "२०२६"), (Strings{"२०२", "६"}));
  EXPECT_TRUE(llama3.ignore_merges);
  EXPECT_TRUE(llama3.add_bos);
}

TEST(PreTokenizerTest, SmolLmSplitsEachDigitAndThenAsGpt2) {
  EXPECT_EQ(split(gguf_pre_tokenizer("smollm").steps, "it's 12 x  y"),
            (Strings{"it", "'s", " ", "1", "2", " x", " ", " y"}));
  EXPECT_EQ(split(gguf_pre_tokenizer("gpt-2").steps, "it's 12 x  y"),
            (Strings{"it", "'s", " 12", " x", " ", " y"}));
}

TEST(PreTokenizerTest, EachBehaviorOfSplitTreatsMatchesInItsOwnWay) {
  const Strings isolated = {"-", "-", "the", "-", "final", "-", "-", "countdown", "-"};
  const Strings previous = {"-", "-", "the-", "final-", "-", "countdown-"};
  const Strings next = {"-", "-the", "-final", "-", "-countdown", "-"};
  const Strings contiguous = {"--", "the", "-", "final", "--", "countdown", "-"};
  const std::vector<std::tuple<SplitBehavior, Strings, Strings>> cases = {
      {SplitBehavior::kRemoved, {"the", "final", "countdown"}, {"-", "-", "-", "-", "-", "-"}},
      {SplitBehavior::kIsolated, isolated, isolated},
      {SplitBehavior::kMergedWithPrevious, previous, next},
      {SplitBehavior::kMergedWithNext, next, previous},
      {SplitBehavior::kContiguous, contiguous, contiguous},
  };
  for (const auto& [behavior, plain, inverted] : cases) {
    for (const bool invert : {false, true}) {
      const PreTokenizer steps(
          {PreTokenizer::Split{.pattern = Regex("-"), .behavior = behavior, .invert = invert}});
      EXPECT_EQ(split(steps, "--the-final--countdown-"), invert ? inverted : plain)
          << static_cast<int>(behavior) << invert;
    }
  }
}

TEST(PreTokenizerTest, AnEmptyMatchSplits) {
  EXPECT_EQ(
      split(PreTokenizer({PreTokenizer::Split{Regex(R"((?=(\d{3})+(?!\d)))")}}), "a1234567 99"),
      (Strings{"a1", "234", "567 99"}));
  EXPECT_EQ(split(PreTokenizer({PreTokenizer::Split{Regex("x*")}}), "axxbé"),
            (Strings{"a", "xx", "b", "é"}));
}

TEST(PreTokenizerTest, DigitsAreAllThatUnicodeCallsNumbers) {
  EXPECT_EQ(split(PreTokenizer({PreTokenizer::Digits{.individual = true}}), "ab12 Ⅷ½x3"),
            (Strings{"ab", "1", "2", " ", "Ⅷ", "½", "x", "3"}));
  EXPECT_EQ(split(PreTokenizer({PreTokenizer::Digits{.individual = false}}), "ab12 Ⅷ½x3"),
            (Strings{"ab", "12", " ", "Ⅷ½", "x", "3"}));
}

TEST(PreTokenizerTest, ByteLevelPutsASpaceInFrontOfEveryPieceThatIsGivenToIt) {
  const PreTokenizer steps({PreTokenizer::Digits{.individual = true},
                            PreTokenizer::ByteLevel{.add_prefix_space = true}});
  EXPECT_EQ(split(steps, "hello world"), (Strings{" hello", " world"}));
  EXPECT_EQ(split(steps, " x"), (Strings{" x"}));
  EXPECT_EQ(split(steps, "12ab"), (Strings{" 1", " 2", " ab"}));
}

TEST(PreTokenizerTest, MetaspaceMarksSpacesAndTheBeginning) {
  const std::string mark = "▁";
  const auto make = [&](Metaspace::Prepend prepend, bool cut) {
    return PreTokenizer({Metaspace{.replacement = mark, .prepend = prepend, .split = cut}});
  };
  using enum Metaspace::Prepend;
  EXPECT_EQ(split(make(kAlways, true), "hi  there"), (Strings{"▁hi", "▁", "▁there"}));
  EXPECT_EQ(split(make(kAlways, false), "hi  there"), (Strings{"▁hi▁▁there"}));
  EXPECT_EQ(split(make(kNever, true), "hi  there"), (Strings{"hi", "▁", "▁there"}));
  EXPECT_EQ(split(make(kAlways, true), "  hi"), (Strings{"▁", "▁hi"}));
  EXPECT_EQ(split(make(kAlways, true), "▁a b"), (Strings{"▁a", "▁b"}));
  EXPECT_EQ(split(make(kFirst, false), "é"), (Strings{"▁é"}));
  EXPECT_EQ(split(make(kFirst, false), "é", /*at_start=*/false), (Strings{"é"}));
  EXPECT_EQ(split(make(kNever, false), "é"), (Strings{"é"}));
}

TEST(PreTokenizerTest, NothingIsLostOrDoubledWhateverTheText) {
  testing_util::Random random(9);
  const Strings parts = {"a",        "Z",  " ",  "\n",  "\r\n", "\t", "7",
                         "é",        "世", "'s", "'LL", "!",    "_",  "👩‍👩‍👧",
                         "\xC2\xA0", "½",  "ิ"};
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
    const PreTokenizer steps = gguf_pre_tokenizer(name).steps;
    for (int round = 0; round < 300; ++round) {
      std::string text, joined;
      for (std::int64_t n = random.below(30); n > 0; --n)
        text += parts[static_cast<std::size_t>(random.below(std::ssize(parts)))];
      for (const std::string& piece : split(steps, text)) joined += piece;
      ASSERT_EQ(joined, text) << name;
    }
  }
}

}  // namespace
}  // namespace minisgl
