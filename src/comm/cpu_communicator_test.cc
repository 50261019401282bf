#include "comm/cpu_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "testing/local_ranks.h"
#include "testing/random.h"

namespace minisgl {
namespace {

using testing_util::LocalRank;
using testing_util::run_ranks;

Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  Tensor tensor(shape, DType::kF32);
  std::memcpy(tensor.view().data, values.data(), values.size() * sizeof(float));
  return tensor;
}

std::vector<float> values_of(const TensorView& tensor) {
  return {tensor.as<float>(), tensor.as<float>() + tensor.numel()};
}

/// What rank `rank` brings, in [-1, 1).
std::vector<float> values_of_rank(int rank, std::int64_t count) {
  return testing_util::uniform(count, static_cast<std::uint64_t>(rank) + 1);
}

class CpuCommunicatorTest : public testing::TestWithParam<int> {};

// Oracle: one loop, in the order of the ranks. Sizes below and above the border between the two
// ways to add, and such that do not divide.
TEST_P(CpuCommunicatorTest, SumsAreThoseInTheOrderOfTheRanksBitForBit) {
  const int size = GetParam();
  for (const std::int64_t count : {1, 7, 4096, 16384, 16385, 100'003}) {
    std::vector<float> expected = values_of_rank(0, count);
    for (int rank = 1; rank < size; ++rank) {
      const std::vector<float> more = values_of_rank(rank, count);
      for (std::size_t i = 0; i < more.size(); ++i) expected[i] += more[i];
    }
    run_ranks(size, [&](int rank, LocalRank& local) {
      CpuStream stream(rank + 1);
      const Tensor x = tensor_of(values_of_rank(rank, count), {count});
      local.tensors.all_reduce(x, stream);
      stream.synchronize();
      EXPECT_EQ(values_of(x), expected) << count << " numbers, rank " << rank;
    });
  }
}

// A row's sum must not depend on the rows beside it.
TEST_P(CpuCommunicatorTest, ARowAloneHasTheSameSum) {
  const int size = GetParam();
  constexpr std::int64_t kRows = 9;
  constexpr std::int64_t kWidth = 5000;
  run_ranks(size, [&](int rank, LocalRank& local) {
    CpuStream stream(1);
    const std::vector<float> values = values_of_rank(rank, kRows * kWidth);
    const Tensor all = tensor_of(values, {kRows, kWidth});
    const Tensor row =
        tensor_of({values.begin() + 4 * kWidth, values.begin() + 5 * kWidth}, {kWidth});
    local.tensors.all_reduce(all, stream);
    local.tensors.all_reduce(row, stream);
    stream.synchronize();
    EXPECT_EQ(values_of(row), values_of(all.view().slice(4, 5).reshape({kWidth})));
  });
}

// Source of these numbers: mini-sglang's test of its communicator.
TEST_P(CpuCommunicatorTest, OnesReducedFourTimesAreThePowerAndALateRankChangesNothing) {
  const int size = GetParam();
  run_ranks(size, [&](int rank, LocalRank& local) {
    CpuStream stream(1);
    const Tensor ones = tensor_of(std::vector<float>(8192, 1.0F), {16, 512});
    for (int i = 0; i < 4; ++i) local.tensors.all_reduce(ones, stream);
    if (rank == size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Tensor ranks = tensor_of(std::vector<float>(8192, static_cast<float>(rank)), {8192});
    local.tensors.all_reduce(ranks, stream);
    stream.synchronize();
    const auto power = static_cast<float>(size * size * size * size);
    const auto sum = static_cast<float>(size * (size - 1)) / 2;
    EXPECT_EQ(values_of(ones.view().reshape({8192})), std::vector<float>(8192, power));
    EXPECT_EQ(values_of(ranks), std::vector<float>(8192, sum));
  });
}

TEST_P(CpuCommunicatorTest, PartsAreCollectedInTheOrderOfTheRanks) {
  const int size = GetParam();
  run_ranks(size, [&](int rank, LocalRank& local) {
    CpuStream stream(1);
    const Tensor x = tensor_of(values_of_rank(rank, 12), {3, 4});
    const Tensor parts({size, 12}, DType::kF32);
    local.tensors.all_gather(x, parts, stream);
    stream.synchronize();
    for (int other = 0; other < size; ++other)
      EXPECT_EQ(values_of(parts.view().slice(other, other + 1)), values_of_rank(other, 12));
  });
}

TEST_P(CpuCommunicatorTest, ARankThatIsGoneIsAFaultOfTheStream) {
  const int size = GetParam();
  try {
    run_ranks(size, [&](int rank, LocalRank& local) {
      if (rank == 1) return;
      CpuStream stream(1);
      const Tensor x = tensor_of(values_of_rank(rank, 12), {12});
      local.tensors.all_reduce(x, stream);
      stream.synchronize();
    });
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank 1 is gone");
  }
}

TEST_P(CpuCommunicatorTest, ADryStreamWaitsForNobody) {
  run_ranks(GetParam(), [&](int rank, LocalRank& local) {
    if (rank > 0) return;
    const std::unique_ptr<CpuStream> dry = CpuStream::make_dry();
    const Tensor x = tensor_of(values_of_rank(0, 12), {12});
    const Tensor parts({GetParam(), 12}, DType::kF32);
    local.tensors.all_reduce(x, *dry);
    local.tensors.all_gather(x, parts, *dry);
    EXPECT_EQ(values_of(x), values_of_rank(0, 12));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CpuCommunicatorTest, testing::Values(2, 3, 4));

}  // namespace
}  // namespace minisgl
