#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/random.h"

namespace minisgl {
namespace {

constexpr auto kAllowAll = [](const AddedToken&, std::size_t, std::size_t) { return true; };

// The text with each token found in brackets, white space that it takes included.
template <class Allowed>
std::string mark(const AddedTokenFinder& finder, std::string_view text, const Allowed& allowed) {
  std::string out;
  std::size_t done = 0;
  while (const auto found = finder.find(text, done, allowed)) {
    out += text.substr(done, found->begin - done);
    out += '[';
    out += text.substr(found->begin, found->end - found->begin);
    out += ']';
    done = found->end;
  }
  out += text.substr(done);
  return out;
}

std::string mark(const AddedTokenFinder& finder, std::string_view text) {
  return mark(finder, text, kAllowAll);
}

AddedTokenFinder make_finder() {
  return AddedTokenFinder({{.id = 1, .content = "<|end|>", .special = true, .rstrip = true},
                           {.id = 2, .content = "<|u|>", .special = true},
                           {.id = 3, .content = "<|u|>x", .special = true},
                           {.id = 4, .content = "<mask>", .special = true, .lstrip = true},
                           {.id = 5, .content = "wo", .single_word = true},
                           {.id = 6, .content = ""}});
}

TEST(AddedTokensTest, TakeWhiteSpaceAndWordBordersAsTheirFlagsSay) {
  const AddedTokenFinder finder = make_finder();
  EXPECT_EQ(mark(finder, "hi<|end|>  \n yo"), "hi[<|end|>  \n ]yo");
  EXPECT_EQ(mark(finder, "<|end|>yo"), "[<|end|>]yo");
  EXPECT_EQ(mark(finder, "a <|u|> b"), "a [<|u|>] b");
  EXPECT_EQ(mark(finder, "x  <mask> y"), "x[  <mask>] y");
  EXPECT_EQ(mark(finder, "two wo wo."), "two [wo] [wo].");
  EXPECT_EQ(mark(finder, "éwo wo世 wo"), "éwo wo世 [wo]");
  EXPECT_EQ(mark(finder, "<|end|> \xE3\x80\x80<mask>"), "[<|end|> \xE3\x80\x80][<mask>]")
      << "white space goes to one of them, the first";
}

TEST(AddedTokensTest, TheLongestOfThoseThatBeginLeftmostIsTaken) {
  const AddedTokenFinder finder = make_finder();
  EXPECT_EQ(mark(finder, "<|u|>x"), "[<|u|>x]");
  EXPECT_EQ(mark(finder, "<|u|><|u|>y"), "[<|u|>][<|u|>]y");
  EXPECT_EQ(mark(finder, "<|u| <|U|> <|u<|u|>"), "<|u| <|U|> <|u[<|u|>]");
  EXPECT_EQ(mark(finder, ""), "");
  EXPECT_EQ(mark(AddedTokenFinder(), "<|u|>"), "<|u|>");
}

TEST(AddedTokensTest, PartsOfCharactersAreNotSearched) {
  const AddedTokenFinder finder({{.id = 1, .content = "\xC3"}, {.id = 2, .content = "\xA9 x"}});
  EXPECT_EQ(mark(finder, "é x"), "é x");
}

TEST(AddedTokensTest, WhereTheLongestIsRefusedAShorterOrALaterOneIsTaken) {
  const AddedTokenFinder finder = make_finder();
  const auto refuse = [](TokenId id) {
    return [id](const AddedToken& token, std::size_t, std::size_t) { return token.id != id; };
  };
  EXPECT_EQ(mark(finder, "<|u|>x<|u|>", refuse(3)), "[<|u|>]x[<|u|>]");
  EXPECT_EQ(mark(finder, "<|u|><|u|>x", refuse(2)), "<|u|>[<|u|>x]");
  const auto not_over_6 = [](const AddedToken&, std::size_t begin, std::size_t end) {
    return end <= 6 || begin >= 6;
  };
  EXPECT_EQ(mark(finder, " <|u|>x", not_over_6), " [<|u|>]x");
}

TEST(AddedTokensTest, RandomTextsAreMarkedAsAPlainSearchMarksThem) {
  testing_util::Random random(13);
  for (int round = 0; round < 3000; ++round) {
    std::vector<AddedToken> tokens;
    for (TokenId id = 0; id < 6; ++id) {
      std::string content;
      for (std::int64_t n = random.between(1, 4); n > 0; --n)
        content.push_back(static_cast<char>('a' + random.below(2)));
      tokens.push_back({.id = id, .content = content});
    }
    std::string text;
    for (std::int64_t n = random.below(20); n > 0; --n)
      text.push_back(static_cast<char>('a' + random.below(3)));
    std::string expected;
    for (std::size_t pos = 0; pos < text.size();) {
      std::size_t longest = 0;
      for (const AddedToken& token : tokens)
        if (text.compare(pos, token.content.size(), token.content) == 0)
          longest = std::max(longest, token.content.size());
      if (longest == 0) {
        expected += text[pos++];
      } else {
        expected.append("[").append(text, pos, longest).append("]");
        pos += longest;
      }
    }
    ASSERT_EQ(mark(AddedTokenFinder(tokens), text), expected) << text;
  }
}

}  // namespace
}  // namespace minisgl
