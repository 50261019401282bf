#include "kvcache/common_prefix.h"

#include <gtest/gtest.h>

#include <vector>

namespace minisgl {
namespace {

TEST(CommonPrefixTest, FindsTheFirstDifferenceAtEveryPosition) {
  for (std::size_t size = 0; size <= 200; ++size) {
    std::vector<TokenId> a(size);
    for (std::size_t i = 0; i < size; ++i) a[i] = static_cast<TokenId>(i * 7);
    ASSERT_EQ(common_prefix_len(a, a), size);
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<TokenId> b = a;
      b[at] ^= 1 << (at % 31);  // one bit, in any byte
      ASSERT_EQ(common_prefix_len(a, b), at) << "of " << size;
    }
  }
}

TEST(CommonPrefixTest, StopsAtTheEndOfTheShorter) {
  const std::vector<TokenId> a(150, 3), b(65, 3);
  EXPECT_EQ(common_prefix_len(a, b), 65U);
  EXPECT_EQ(common_prefix_len(b, a), 65U);
  EXPECT_EQ(common_prefix_len({}, a), 0U);
}

}  // namespace
}  // namespace minisgl
