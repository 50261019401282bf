#include "tokenizer/jinja_string.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {
namespace {

// The naive model: every character with its own mark.
using Model = std::vector<std::pair<std::string, bool>>;

Model model_of(const Str& s) {
  Model model;
  MarkCursor marks(s);
  for_each_char(s.text(), [&](const Char& c) {
    model.emplace_back(s.text().substr(c.begin, c.end - c.begin), marks.at(c.begin));
  });
  return model;
}

Str text_of(const Model& model) {
  StrBuilder out;
  for (const auto& [character, marked] : model) out.append(character, marked);
  return out.build();
}

void check_invariants(const Str& s) {
  std::size_t end = 0;
  bool first = true;
  for (const Span& span : s.marks()) {
    ASSERT_LT(span.begin, span.end);
    ASSERT_TRUE(first || span.begin > end);
    ASSERT_LE(span.end, s.size());
    end = span.end;
    first = false;
  }
  ASSERT_EQ(s.length(), model_of(s).size());
}

Str random_text(std::mt19937& random) {
  const std::vector<std::string> characters{"a", "b", " ", "é", "日", "😀", "\n"};
  Model model;
  for (auto n = random() % 12; n > 0; --n)
    model.emplace_back(characters[random() % characters.size()], random() % 2 == 0);
  return text_of(model);
}

TEST(JinjaString, BehavesAsCharactersWithMarks) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    const Str a = random_text(random);
    const Str b = random_text(random);
    check_invariants(a);
    const Model model_a = model_of(a);
    Model joined = model_a;
    const Model model_b = model_of(b);
    joined.insert(joined.end(), model_b.begin(), model_b.end());
    check_invariants(concat(a, b));
    ASSERT_EQ(model_of(concat(a, b)), joined);

    ASSERT_EQ(model_of(reversed(a)), Model(model_a.rbegin(), model_a.rend()));
    const std::size_t from = random() % (a.length() + 1);
    const std::size_t to = from + random() % (a.length() + 1 - from);
    const Str part = a.slice(a.offset_of(from), a.offset_of(to));
    ASSERT_EQ(model_of(part), Model(model_a.begin() + static_cast<std::ptrdiff_t>(from),
                                    model_a.begin() + static_cast<std::ptrdiff_t>(to)));
    ASSERT_EQ(a.index_of(a.offset_of(from)), from);

    Model replaced;
    for (const auto& character : model_a) {
      if (character.first == "a") {
        replaced.insert(replaced.end(), model_b.begin(), model_b.end());
      } else {
        replaced.push_back(character);
      }
    }
    ASSERT_EQ(model_of(replace(a, "a", b)), replaced);
  }
}

TEST(JinjaString, TouchingMarksBecomeOne) {
  StrBuilder out;
  out.append("ab", true);
  out.append("cd", true);
  out.append("ef");
  out.append("", true);
  out.append("gh", true);
  EXPECT_EQ(out.build().marks(), (std::vector<Span>{{0, 4}, {6, 8}}));
}

TEST(JinjaString, CountsCharactersOfLongAndOfBrokenTexts) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += i % 3 == 0 ? "é" : i % 3 == 1 ? "x" : "日";
    EXPECT_EQ(Str(text).length(), static_cast<std::size_t>(i + 1));
  }
  // Stray bytes: each lead byte is a character, and continuation bytes belong to the one before.
  EXPECT_EQ(Str("a\xFF\xFE").length(), 3U);
  EXPECT_EQ(char_at("\xE6\x97", 0).code, 0xFFFDU);
  EXPECT_EQ(char_at("\xE6\x97", 0).end, 2U);
}

TEST(JinjaString, SlicesClipAsInPython) {
  // {start, stop, step, length} -> {first index, end, number}, as slice.indices() has them.
  const auto clip = [](std::int64_t start, std::int64_t stop, std::int64_t step, std::int64_t n) {
    const SliceRange r = clip_slice(start, stop, step, n);
    return std::vector<std::int64_t>{r.start, r.stop, r.count};
  };
  EXPECT_EQ(clip(1, 4, 1, 10), (std::vector<std::int64_t>{1, 4, 3}));
  EXPECT_EQ(clip(-3, 100, 1, 10), (std::vector<std::int64_t>{7, 10, 3}));
  EXPECT_EQ(clip(-100, 100, 3, 10), (std::vector<std::int64_t>{0, 10, 4}));
  EXPECT_EQ(clip(8, 2, -2, 10), (std::vector<std::int64_t>{8, 2, 3}));
  EXPECT_EQ(clip(100, -100, -1, 3), (std::vector<std::int64_t>{2, -1, 3}));
  EXPECT_EQ(clip(5, 2, 1, 10), (std::vector<std::int64_t>{5, 2, 0}));
  EXPECT_EQ(clip(0, 5, 1, 0), (std::vector<std::int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace minisgl::jinja
