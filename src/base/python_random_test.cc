#include "base/python_random.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "minisgl/error.h"

namespace minisgl {
namespace {

std::vector<std::int64_t> draw(PythonRandom& random, std::int32_t low, std::int32_t high,
                               int count) {
  std::vector<std::int64_t> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(random.randint(low, high));
  return numbers;
}

using Numbers = std::vector<std::int64_t>;

// All expected numbers are those of Python 3.11.

TEST(PythonRandomTest, DrawsAreThoseOfPython) {
  PythonRandom random(0);
  EXPECT_EQ(draw(random, 0, 10000, 6), (Numbers{6311, 6890, 663, 4242, 8376, 7961}));
  EXPECT_EQ(draw(random, 5, 5, 2), (Numbers{5, 5}));
  EXPECT_EQ(draw(random, -3, 3, 8), (Numbers{0, -1, 1, -2, 1, -2, -1, -2}));
  draw(random, 0, 1 << 30, 2000);  // the state is made anew several times
  EXPECT_EQ(random.randint(0, std::numeric_limits<std::int32_t>::max() - 1), 1502145762);
}

TEST(PythonRandomTest, LargestSeedAndRange) {
  constexpr auto kLow = std::numeric_limits<std::int32_t>::min();
  constexpr auto kHigh = std::numeric_limits<std::int32_t>::max();
  PythonRandom random(0xFFFFFFFF);
  EXPECT_EQ(draw(random, kLow, kHigh - 1, 4),
            (Numbers{581355785, 513541364, -1274746559, -1222590551}));
  EXPECT_THROW(random.randint(kLow, kHigh), Error);
  EXPECT_THROW(random.randint(1, 0), Error);
}

}  // namespace
}  // namespace minisgl
