#include "engine/step_arrays.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/buffer.h"

namespace minisgl {
namespace {

// Address of the first byte and number of bytes, in the order in which they lie in memory.
std::vector<std::pair<std::byte*, std::int64_t>> extents(const StepArrays& arrays,
                                                         std::int64_t samples) {
  std::vector<std::pair<std::byte*, std::int64_t>> result;
  for (const TensorView& ints : {arrays.token_ids, arrays.positions, arrays.out_locs,
                                 arrays.logit_rows, arrays.sample_rows, arrays.decode_rows})
    result.emplace_back(static_cast<std::byte*>(ints.data), ints.bytes());
  result.emplace_back(reinterpret_cast<std::byte*>(arrays.sampling),
                      samples * static_cast<std::int64_t>(sizeof(kernels::SamplingRow)));
  return result;
}

TEST(StepArraysTest, LieApartOnBoundariesOf64BytesWithinWhatTheyAreSaidToTake) {
  for (const std::int64_t tokens : {1, 15, 16, 17, 300}) {
    for (const std::int64_t samples : {0, 1, 17}) {
      const std::int64_t bytes = lay_out(nullptr, tokens, samples, samples).bytes;
      const Buffer block(static_cast<std::size_t>(bytes), {});
      const StepArrays arrays = lay_out(block.data(), tokens, samples, samples);
      EXPECT_EQ(arrays.bytes, bytes);
      EXPECT_EQ(arrays.token_ids.shape[0], tokens);
      EXPECT_EQ(arrays.logit_rows.shape[0], samples);
      std::byte* end = block.data();
      for (const auto& [begin, size] : extents(arrays, samples)) {
        EXPECT_GE(begin, end) << tokens << " tokens, " << samples << " samples";
        EXPECT_EQ((begin - block.data()) % 64, 0);
        end = begin + size;
      }
      EXPECT_LE(end, block.data() + bytes);
    }
  }
}

TEST(StepArraysTest, OfEqualCountsHaveEqualOffsetsOnHostAndDevice) {
  const Buffer a(4096, {}), b(4096, {});
  const auto on_a = extents(lay_out(a.data(), 40, 7, 3), 7);
  const auto on_b = extents(lay_out(b.data(), 40, 7, 3), 7);
  ASSERT_EQ(on_a.size(), on_b.size());
  for (std::size_t i = 0; i < on_a.size(); ++i) {
    EXPECT_EQ(on_a[i].first - a.data(), on_b[i].first - b.data()) << "array " << i;
    EXPECT_EQ(on_a[i].second, on_b[i].second) << "array " << i;
  }
}

}  // namespace
}  // namespace minisgl
