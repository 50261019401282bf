#include "chat/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace minisgl {
namespace {

using Strings = std::vector<std::string>;

struct Result {
  Strings sent;  // what each push() gave, then flush()
  bool stopped = false;
  std::string text() const {
    std::string all;
    for (const std::string& s : sent) all += s;
    return all;
  }
};

Result run(const Strings& stops, const Strings& pieces) {
  StopMatcher matcher(stops);
  Result result;
  for (const std::string& piece : pieces) result.sent.push_back(matcher.push(piece));
  result.sent.push_back(matcher.flush());
  result.stopped = matcher.stopped();
  return result;
}

const Strings kLetters = {" D", " E", " F", " G", " H", " I", " J"};

TEST(StopMatcherTest, StopAcrossTwoPiecesLetsNoPartOfItOut) {
  const Result r = run({" E F"}, kLetters);
  EXPECT_EQ(r.sent, (Strings{" D", "", "", "", "", "", "", ""}));
  EXPECT_TRUE(r.stopped);
}

TEST(StopMatcherTest, CandidateThatFailsIsSentAsSoonAsItFails) {
  const Result r = run({"E FX"}, kLetters);
  EXPECT_EQ(r.sent, (Strings{" D", " ", "", "E F G", " H", " I", " J", ""}));
  EXPECT_FALSE(r.stopped);
}

TEST(StopMatcherTest, TextAfterTheMatchInTheSamePieceIsDropped) {
  EXPECT_EQ(run({"F"}, kLetters).text(), " D E ");
  EXPECT_EQ(run({"b"}, {"abc", "d"}).text(), "a");
}

TEST(StopMatcherTest, HeldTextComesOutAtTheEnd) {
  const Result r = run({"###"}, {"a#", "#"});
  EXPECT_EQ(r.sent, (Strings{"a", "", "##"}));
  EXPECT_FALSE(r.stopped);
}

TEST(StopMatcherTest, CandidateThatOverlapsItselfIsFound) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}).text(), "a");
  EXPECT_EQ(run({"abac"}, {"abab", "ac!"}).text(), "ab");
}

TEST(StopMatcherTest, WhatIsCompleteFirstWinsAndOfEqualEndsTheLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}).text(), "xa");
  EXPECT_EQ(run({"bc", "abc"}, {"xabcd"}).text(), "x");
}

TEST(StopMatcherTest, NoStopStringsPassEverythingAtOnce) {
  EXPECT_EQ(run({}, {"a", "b"}).sent, (Strings{"a", "b", ""}));
  EXPECT_EQ(run({""}, {"a", "b"}).sent, (Strings{"a", "b", ""}));
}

TEST(StopMatcherTest, CharactersOfSeveralBytesAreNeverCut) {
  // The two snowflakes differ in their last byte only: the shared bytes alone are no reason to cut.
  const Result r = run({"\u2744!"}, {"a\u2745", "\u2744", "?"});
  EXPECT_EQ(r.sent, (Strings{"a\u2745", "", "\u2744?", ""}));
}

// Oracle: the definition, over the whole text, byte by byte, without an automaton.
struct Naive {
  explicit Naive(const Strings& s) : stops(s) {}
  void push(std::string_view piece) {
    for (const char c : piece) {
      if (stopped) return;
      text += c;
      std::size_t longest = 0;
      for (const std::string& s : stops)
        if (text.ends_with(s)) longest = std::max(longest, s.size());
      if (longest > 0) {
        stopped = true;
        text.resize(text.size() - longest);
      }
    }
  }
  std::size_t held() const {
    std::size_t longest = 0;
    if (stopped) return 0;
    for (const std::string& s : stops)
      for (std::size_t n = 1; n < s.size(); ++n)
        if (text.ends_with(s.substr(0, n))) longest = std::max(longest, n);
    return longest;
  }
  Strings stops;
  std::string text;
  bool stopped = false;
};

TEST(StopMatcherTest, RandomTextsAgreeWithTheDefinitionAfterEveryPiece) {
  std::mt19937 random(7);
  const auto word = [&](int max_length) {  // two letters: many near-misses
    std::string s;
    for (int n = static_cast<int>(random() % static_cast<unsigned>(max_length)) + 1; n > 0; --n)
      s += static_cast<char>('a' + random() % 2);
    return s;
  };
  int num_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    Strings stops;
    for (unsigned n = random() % 4; n > 0; --n) stops.push_back(word(7));
    StopMatcher matcher(stops);
    Naive naive(stops);
    std::string sent;
    for (int piece = 0; piece < 6; ++piece) {
      const std::string text = word(5);
      sent += matcher.push(text);
      naive.push(text);
      ASSERT_EQ(matcher.stopped(), naive.stopped) << "round " << round;
      ASSERT_EQ(sent, naive.text.substr(0, naive.text.size() - naive.held())) << "round " << round;
    }
    sent += matcher.flush();
    ASSERT_EQ(sent, naive.text) << "round " << round;
    num_stopped += naive.stopped ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 5000);
  EXPECT_LT(num_stopped, 18000);
}

}  // namespace
}  // namespace minisgl
