#include "tokenizer/word_splitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "testing/random.h"
#include "tokenizer/pre_tokenizer.h"

namespace minisgl {
namespace {

using Pattern = WordSplitter::Pattern;
using Strings = std::vector<std::string>;
using testing_util::Random;

constexpr Pattern kAll[] = {Pattern::kGpt2,  Pattern::kGpt2Digits, Pattern::kLlama3,
                            Pattern::kQwen2, Pattern::kQwen35,     Pattern::kTekken,
                            Pattern::kO200k};

// The steps that tokenizer.json files have for a pattern.
PreTokenizer steps_of(Pattern pattern) {
  if (pattern == Pattern::kGpt2) return PreTokenizer({PreTokenizer::ByteLevel{}});
  if (pattern == Pattern::kGpt2Digits)
    return PreTokenizer({PreTokenizer::Digits{.individual = true}, PreTokenizer::ByteLevel{}});
  return PreTokenizer({PreTokenizer::Split{.pattern = Regex(regex_of(pattern))},
                       PreTokenizer::ByteLevel{.use_regex = false}});
}

Strings split_by_regex(const PreTokenizer& steps, const std::string& text) {
  PreTokenizer::Pieces out;
  steps.run(text, /*at_start=*/true, out);
  Strings words;
  for (const TextRange piece : out.pieces)
    words.push_back(text.substr(piece.begin, piece.end - piece.begin));
  return words;
}

// With room for `at_a_time` words in each call.
Strings split_by_hand(const WordSplitter& splitter, const std::string& text,
                      std::size_t at_a_time) {
  Strings words;
  std::vector<std::uint32_t> ends(at_a_time);
  for (std::size_t done = 0; done < text.size();) {
    const std::size_t count = splitter.run(text, done, ends);
    if (count == 0) break;
    for (const std::uint32_t end : std::span(ends).first(count)) {
      words.push_back(text.substr(done, end - done));
      done = end;
    }
  }
  return words;
}

// What the patterns tell apart, each kind of character several times; the rest is drawn from all of
// Unicode.
char32_t random_character(Random& random) {
  static constexpr std::u32string_view kKinds[] = {
      U"sStTmMdDlLrRvVeE\u017F\u212A",  // contractions, and what folds to s and k
      U"'''\u2019\u02BC",               // apostrophes
      U"abcxyzABCXYZ",                  // letters
      U"\u00E9\u00C9\u00DF\u0436\u0416\u03C3\u03A3\u01C5\u1F88",  // with case, two of them title
      U"\u4E2D\u6587\u3042\u30A2\uAC00\u05D0\u0639\u0E01\u02B0\u3005\U00020000",  // without
      U"\u0301\u0308\u0E34\u093F\u0903\u20DD\uFE0F\U000E0100",  // marks of all three kinds
      U"0123456789",
      U"\u0661\u0967\u00BD\u00B2\u2167\u2460\u3007\U0001D7D8",  // other numbers of all three kinds
      U"      ",
      U"\t\n\r\n\r\v\f",
      U"\u0085\u00A0\u1680\u2003\u2028\u2029\u202F\u205F\u3000",  // other white space
      U"\u180E\u200B\u200C\u200D\uFEFF\u00AD\u0000\u001C\u007F",  // no white space
      U"!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~//",
      U"\u2014\u2026\u20AC\u00AB\u3002\uFF01\U0001F600\u00A9\uE000\U0010FFFF",
  };
  const auto kind = static_cast<std::size_t>(random.below(std::size(kKinds) + 1));
  if (kind < std::size(kKinds))
    return kKinds[kind][static_cast<std::size_t>(
        random.below(static_cast<std::int64_t>(kKinds[kind].size())))];
  const auto any = static_cast<char32_t>(random.below(random.below(2) == 0 ? 0x3000 : 0x110000));
  return any >= 0xD800 && any < 0xE000 ? U' ' : any;
}

std::string random_text(Random& random) {
  std::string text;
  const std::int64_t length = random.between(1, 24);
  while (static_cast<std::int64_t>(text.size()) < length) {
    const char32_t c = random_character(random);
    // Runs of one kind of character are what patterns are about.
    for (std::int64_t n = random.below(4) == 0 ? random.between(1, 5) : 1; n > 0; --n)
      append_utf8(text, c);
  }
  return text;
}

// MINISGL_SPLITTER_STRINGS: how many instead; a million take half a minute.
std::int64_t number_of_strings() {
  const char* wanted = std::getenv("MINISGL_SPLITTER_STRINGS");
  return wanted != nullptr ? std::atoll(wanted) : 20'000;
}

class WordSplitterTest : public testing::TestWithParam<Pattern> {};

TEST_P(WordSplitterTest, SplitsRandomStringsAsPcre2Does) {
  const WordSplitter splitter(GetParam());
  const PreTokenizer steps = steps_of(GetParam());
  Random random(20261130);
  const std::int64_t count = number_of_strings();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(split_by_hand(splitter, text, 64), split_by_regex(steps, text))
        << "string " << i << ": " << testing::PrintToString(text);
  }
}

TEST_P(WordSplitterTest, GoesOnWhereItStoppedWhateverTheRoom) {
  const WordSplitter splitter(GetParam());
  Random random(7);
  std::string text;
  for (int i = 0; i < 200; ++i) text += random_text(random);
  const Strings whole = split_by_hand(splitter, text, text.size());
  for (const std::size_t room : {1, 2, 3, 100})
    EXPECT_EQ(split_by_hand(splitter, text, room), whole);
}

TEST_P(WordSplitterTest, IsFoundByTheStepsOfATokenizerJson) {
  const PreTokenizer steps = steps_of(GetParam());
  ASSERT_TRUE(steps.splitter().has_value());
  EXPECT_EQ(steps.splitter()->pattern(), GetParam());
}

TEST_P(WordSplitterTest, AnEmptyTextHasNoWords) {
  std::vector<std::uint32_t> ends(4);
  EXPECT_EQ(WordSplitter(GetParam()).run("", 0, ends), 0U);
}

std::string name_of(const testing::TestParamInfo<Pattern>& info) {
  constexpr const char* kNames[] = {"Gpt2",   "Gpt2Digits", "Llama3", "Qwen2",
                                    "Qwen35", "Tekken",     "O200k"};
  return kNames[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Patterns, WordSplitterTest, testing::ValuesIn(kAll), name_of);

TEST(WordSplitterStepsTest, StepsThatDoMoreThanAPatternHaveNoSplitter) {
  using Split = PreTokenizer::Split;
  const Regex gpt2(regex_of(Pattern::kGpt2));
  const auto has = [](std::vector<PreTokenizer::Step> steps) {
    return PreTokenizer(std::move(steps)).splitter().has_value();
  };
  EXPECT_TRUE(has({Split{.pattern = gpt2}}));
  EXPECT_FALSE(has({}));
  EXPECT_FALSE(has({Split{.pattern = Regex("a+")}}));
  // The pattern leaves nothing between its matches that could be removed.
  EXPECT_TRUE(has({Split{.pattern = gpt2, .invert = true}}));
  EXPECT_TRUE(has({Split{gpt2, SplitBehavior::kRemoved, /*invert=*/true}}));
  EXPECT_FALSE(has({Split{gpt2, SplitBehavior::kRemoved, /*invert=*/false}}));
  EXPECT_FALSE(has({Split{gpt2, SplitBehavior::kContiguous, /*invert=*/false}}));
  EXPECT_FALSE(has({Split{.pattern = gpt2}, PreTokenizer::ByteLevel{}}));
  EXPECT_FALSE(has({PreTokenizer::ByteLevel{.add_prefix_space = true}}));
  EXPECT_FALSE(has({PreTokenizer::ByteLevel{.use_regex = false}}));
  EXPECT_FALSE(has({PreTokenizer::Digits{.individual = false}, PreTokenizer::ByteLevel{}}));
  EXPECT_FALSE(has({PreTokenizer::Metaspace{}}));
}

}  // namespace
}  // namespace minisgl
