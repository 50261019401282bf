#include "grammar/utf8_guard.h"

#include <gtest/gtest.h>

#include <string>

#include "base/utf8.h"

namespace minisgl {
namespace {

std::string bytes(int first, int second) {
  return {static_cast<char>(first), static_cast<char>(second)};
}

TEST(Utf8GuardTest, RefusesExactlyThePairsThatNoByteCanComplete) {
  for (int first = 0xE0; first <= 0xF4; ++first)
    for (int second = 0x80; second <= 0xBF; ++second) {
      const bool can_go_on = decode_utf8(bytes(first, second), 0).status == Utf8Status::kTruncated;
      EXPECT_EQ(Utf8Guard::is_ill_formed(bytes(first, second)), !can_go_on)
          << first << ' ' << second;
    }
  EXPECT_FALSE(Utf8Guard::is_ill_formed("plain é€😀"));
}

TEST(Utf8GuardTest, ClearsTokensThatMayNotFollow) {
  Utf8Guard guard;
  guard.add(3, "\x80");
  guard.add(40, "\xA0z");
  guard.add(41, "a");
  guard.add(42, "");
  std::vector<std::int32_t> mask = {-1, -1};
  guard.apply('a', mask);
  guard.apply(0xE1, mask);
  EXPECT_EQ(mask, (std::vector<std::int32_t>{-1, -1}));
  guard.apply(0xE0, mask);
  EXPECT_EQ(mask, (std::vector<std::int32_t>{~8, -1}));
  guard.apply(0xED, mask);
  EXPECT_EQ(mask, (std::vector<std::int32_t>{~8, ~256}));
  EXPECT_TRUE(Utf8Guard::applies(0xF4));
  EXPECT_FALSE(Utf8Guard::applies(0xC3));
}

}  // namespace
}  // namespace minisgl
