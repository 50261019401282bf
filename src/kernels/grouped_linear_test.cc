#include "kernels/grouped_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/simd.h"
#include "minisgl/error.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing::HasSubstr;
using testing_util::Random;

/// Random bits with sane scales: `offsets` of a block's f16 numbers.
Tensor random_weight(DType type, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor weight({rows, cols}, type);
  std::byte* data = weight.view().data;
  Random random(seed);
  if (type == DType::kF32) {
    for (std::int64_t i = 0; i < rows * cols; ++i) weight.view().as<float>()[i] = random.uniform();
    return weight;
  }
  if (type == DType::kBF16) {
    for (std::int64_t i = 0; i < rows * cols; ++i)
      weight.view().as<BFloat16>()[i] = to_bf16(random.uniform());
    return weight;
  }
  std::vector<int> scales = {0};
  if (type == DType::kQ4_1) scales = {0, 2};
  if (type == DType::kQ2_K) scales = {80, 82};
  for (std::int64_t i = 0; i < weight.view().bytes(); ++i)
    data[i] = static_cast<std::byte>(random.next());
  for (std::int64_t i = 0; i < weight.view().bytes(); i += info(type).block_bytes) {
    for (const int at : scales) {
      const Half half = to_f16(random.uniform() * 0.02F);
      std::memcpy(data + i + at, &half, sizeof(half));
    }
  }
  return weight;
}

/// Experts and the same matrices one by one.
struct Experts {
  Experts(DType type, std::int64_t count, std::int64_t rows, std::int64_t cols, ThreadPool& pool)
      : packed(count) {
    for (std::int64_t e = 0; e < count; ++e) {
      single.push_back(pack_matrix(random_weight(type, rows, cols, 100 + e), {}, pool));
      packed.add(single.back());
    }
  }
  PackedExperts packed;
  std::vector<PackedMatrix> single;
};

struct Problem {
  std::vector<std::int64_t> counts;  // rows of each expert
  std::int64_t cols;
  DType first, second;
  std::int64_t first_rows, second_rows;
};

std::vector<float> multiply(const Problem& problem, const Experts& a, const Experts& b,
                            const Tensor& x, int threads) {
  CpuStream stream(threads);
  const std::int64_t rows = x.view().dim(0);
  const Tensor offsets({static_cast<std::int64_t>(problem.counts.size()) + 1}, DType::kI32);
  for (std::size_t e = 0; e < problem.counts.size(); ++e)
    offsets.view().as<std::int32_t>()[e + 1] =
        offsets.view().as<std::int32_t>()[e] + static_cast<std::int32_t>(problem.counts[e]);
  const PackedExperts* const weights[] = {&a.packed, &b.packed};
  const Tensor y({rows, problem.first_rows + problem.second_rows}, DType::kF32);
  const Tensor workspace({grouped_linear_workspace_bytes(weights, rows)}, DType::kU8);
  grouped_linear({.x = x, .offsets = offsets, .weights = weights, .y = y}, workspace, stream);
  stream.synchronize();
  const auto* values = y.view().as<float>();
  return {values, values + y.view().numel()};
}

/// Each expert's rows by linear(), one row at a time.
std::vector<float> one_by_one(const Problem& problem, const Experts& a, const Experts& b,
                              const Tensor& x) {
  CpuStream stream(1);
  std::vector<float> result;
  std::int64_t row = 0;
  for (std::size_t e = 0; e < problem.counts.size(); ++e) {
    const PackedMatrix* const weights[] = {&a.single[e], &b.single[e]};
    for (std::int64_t i = 0; i < problem.counts[e]; ++i, ++row) {
      const Tensor y({1, problem.first_rows + problem.second_rows}, DType::kF32);
      linear(x.view().slice(row, row + 1), weights, {}, y, stream);
      stream.synchronize();
      result.insert(result.end(), y.view().as<float>(), y.view().as<float>() + y.view().numel());
    }
  }
  return result;
}

TEST(GroupedLinearTest, EveryRowIsWhatLinearMakesOfItAloneBitForBit) {
  const Problem kProblems[] = {
      {{1, 0, 0, 2, 0, 1}, 256, DType::kBF16, DType::kQ4_1, 48, 80},
      {{0, 40, 3, 300, 0, 17}, 256, DType::kQ2_K, DType::kQ4_0, 96, 33},
      {{5, 33, 0, 130, 1, 0}, 96, DType::kF32, DType::kQ8_0, 31, 64},
      {{0, 0, 0, 0, 0, 64}, 70, DType::kF32, DType::kBF16, 16, 16},
  };
  for (const Simd simd : available_simd()) {
    set_simd(name(simd));
    ThreadPool pool(1);
    for (const Problem& problem : kProblems) {
      const auto count = static_cast<std::int64_t>(problem.counts.size());
      const Experts a(problem.first, count, problem.first_rows, problem.cols, pool);
      const Experts b(problem.second, count, problem.second_rows, problem.cols, pool);
      const std::int64_t rows =
          std::accumulate(problem.counts.begin(), problem.counts.end(), std::int64_t{0});
      const Tensor x({rows, problem.cols}, DType::kF32);
      const std::vector<float> values = testing_util::uniform(rows * problem.cols, 7);
      std::copy(values.begin(), values.end(), x.view().as<float>());
      const std::vector<float> expected = one_by_one(problem, a, b, x);
      for (const int threads : {1, 3}) {
        const std::vector<float> actual = multiply(problem, a, b, x, threads);
        ASSERT_EQ(actual.size(), expected.size());
        ASSERT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0)
            << name(simd) << ", " << threads << " threads, " << name(problem.first);
      }
    }
    set_simd("auto");
  }
}

TEST(GroupedLinearTest, NoRowsAreNoWork) {
  ThreadPool pool(1);
  const Problem problem{{0, 0}, 32, DType::kF32, DType::kF32, 8, 8};
  const Experts a(DType::kF32, 2, 8, 32, pool);
  EXPECT_TRUE(multiply(problem, a, a, Tensor({0, 32}, DType::kF32), 2).empty());
}

TEST(GroupedLinearTest, ExpertsThatDoNotFitTogetherAreNamed) {
  ThreadPool pool(1);
  PackedExperts experts(2);
  experts.add(pack_matrix(random_weight(DType::kF32, 4, 32, 1), {}, pool));
  try {
    experts.add(pack_matrix(random_weight(DType::kBF16, 4, 32, 1), {}, pool));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("expert 1 is a bf16 matrix [4, 32], but expert 0 is a f32"));
  }
  EXPECT_FALSE(experts.complete());
  experts.add(pack_matrix(random_weight(DType::kF32, 4, 32, 1), {}, pool));
  EXPECT_TRUE(experts.complete());
}

}  // namespace
}  // namespace minisgl::kernels
