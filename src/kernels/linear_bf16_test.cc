#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/linear_bf16.h"
#include "kernels/linear.h"
#include "kernels/simd_testing.h"
#include "tensor/half.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

Tensor random_floats(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor tensor({rows, cols}, DType::kF32);
  const std::vector<float> values = testing_util::uniform(rows * cols, seed);
  std::memcpy(tensor.view().data, values.data(), values.size() * sizeof(float));
  return tensor;
}

Tensor random_bf16(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  const Tensor wide = random_floats(rows, cols, seed);
  Tensor tensor({rows, cols}, DType::kBF16);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    tensor.view().as<BFloat16>()[i] = to_bf16(wide.view().as<float>()[i]);
  return tensor;
}

/// linear_bf16() and linear() of rounded x, for every instruction set.
class LinearBf16Test : public SimdTest {
 protected:
  PackedMatrix pack(const Tensor& weight) { return pack_matrix(weight, {}, pool_); }
  std::vector<float> multiply(TensorView x, std::span<const PackedMatrix* const> matrices,
                              TensorView bias = {}, int threads = 2) {
    CpuStream stream(threads);
    const Tensor workspace(x.shape, DType::kF32);
    return run(x, matrices, [&](TensorView y) {
      linear_bf16(x, matrices, bias, y, workspace, stream);
      stream.synchronize();
    });
  }
  std::vector<float> multiply_rounded(TensorView x, std::span<const PackedMatrix* const> matrices,
                                      TensorView bias = {}) {
    CpuStream stream(2);
    const Tensor rounded(x.shape, DType::kF32);
    return run(x, matrices, [&](TensorView y) {
      round_to_bf16(x, rounded, stream);
      linear(rounded, matrices, bias, y, stream);
      stream.synchronize();
    });
  }

  ThreadPool pool_{2};

 private:
  template <class Call>
  static std::vector<float> run(TensorView x, std::span<const PackedMatrix* const> matrices,
                                const Call& call) {
    std::int64_t rows = 0;
    for (const PackedMatrix* matrix : matrices) rows += matrix->rows();
    const Tensor y({x.dim(0), rows}, DType::kF32);
    call(y);
    return {y.view().as<float>(), y.view().as<float>() + y.view().numel()};
  }
};

TEST_P(LinearBf16Test, EqualsTheExactProductOfRoundedInputsForAnyShape) {
  const std::int64_t shapes[][3] = {// tokens, rows, cols
                                    {1, 1, 1},     {1, 32, 64},    {2, 33, 97},   {3, 100, 1001},
                                    {4, 64, 224},  {5, 31, 577},   {8, 640, 256}, {9, 97, 131},
                                    {17, 40, 512}, {130, 65, 300}, {257, 3, 1536}};
  std::uint64_t seed = 1;
  for (const auto& [tokens, rows, cols] : shapes) {
    const Tensor weight = random_bf16(rows, cols, ++seed);
    const PackedMatrix w = pack(weight);
    const PackedMatrix* matrices[] = {&w};
    const Tensor x = random_floats(tokens, cols, ++seed);
    const Tensor bias_row = random_floats(1, rows, ++seed);
    const TensorView bias = tokens % 2 == 0 ? TensorView() : bias_row.view().reshape({rows});
    const std::vector<float> actual = multiply(x, matrices, bias);
    const std::vector<float> expected = multiply_rounded(x, matrices, bias);
    for (std::int64_t i = 0; i < tokens * rows; ++i) {
      double size = 1.0;  // of the sum of the products' sizes
      for (std::int64_t k = 0; k < cols; ++k)
        size += std::abs(double{to_f32(weight.view().as<BFloat16>()[i % rows * cols + k])} *
                         x.view().as<float>()[i / rows * cols + k]);
      ASSERT_NEAR(actual[i], expected[i], 1e-6 * size)
          << "token " << i / rows << ", row " << i % rows << " of [" << tokens << ", " << rows
          << ", " << cols << "]";
    }
  }
}

TEST_P(LinearBf16Test, ATokensResultDependsNeitherOnOthersNorOnThreadsNorOnSegments) {
  constexpr std::int64_t kTokens = 300, kCols = 401, kRows = 72 + 40;
  const PackedMatrix a = pack(random_bf16(72, kCols, 1));
  const PackedMatrix b = pack(random_bf16(40, kCols, 2));
  const PackedMatrix* both[] = {&a, &b};
  const PackedMatrix* second[] = {&b};
  const Tensor x = random_floats(kTokens, kCols, 3);
  const std::vector<float> all = multiply(x, both);
  for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 31, 32, 33, 129}) {
    const std::int64_t first = kTokens - count;
    const TensorView part = x.view().slice(first, kTokens);
    for (const int threads : {1, 3})
      ASSERT_EQ(multiply(part, both, {}, threads),
                std::vector<float>(all.begin() + first * kRows, all.end()))
          << count << " tokens, " << threads << " threads";
    const std::vector<float> alone = multiply(part, second);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t n = 0; n < 40; ++n)
        ASSERT_EQ(alone[t * 40 + n], all[(first + t) * kRows + 72 + n]);
  }
}

TEST_P(LinearBf16Test, WeightsOfOtherTypesAreMultipliedAsInLinear) {
  const PackedMatrix wide = pack(random_floats(50, 96, 1));
  const PackedMatrix narrow = pack(random_bf16(20, 96, 2));
  const PackedMatrix* mixed[] = {&narrow, &wide};
  const Tensor x = random_floats(9, 96, 3);
  EXPECT_EQ(multiply(x, mixed), multiply_rounded(x, mixed));
}

TEST_P(LinearBf16Test, TheInputIsRoundedAndNotCut) {
  Tensor weight({1, 2}, DType::kBF16);
  weight.view().as<BFloat16>()[0] = weight.view().as<BFloat16>()[1] = to_bf16(1.0F);
  const PackedMatrix w = pack(weight);
  const PackedMatrix* matrices[] = {&w};
  Tensor x({1, 2}, DType::kF32);
  x.view().as<float>()[0] = 1.0F + 3.0F / 512;   // between 1 + 1/128 and 1: nearer to the first
  x.view().as<float>()[1] = -1.0F - 1.0F / 256;  // a tie: to even
  EXPECT_EQ(multiply(x, matrices)[0], 1.0F / 128);
}

INSTANTIATE_TEST_SUITE_P(All, LinearBf16Test, testing::ValuesIn(available_simd()), simd_name);

TEST(PackOptionsTest, RowsAreReportedInOrderWithoutGapsOnceTheyWillNotBeReadAgain) {
  ThreadPool pool(2);
  // Three chunks of 32 MB and a rest that is not a whole tile.
  constexpr std::int64_t kRows = 12001, kCols = 4096;
  const Tensor weight({kRows, kCols}, DType::kBF16);
  std::int64_t next = 0;
  int calls = 0;
  const PackedMatrix packed =
      pack_matrix(weight, pool, {.on_packed = [&](const TensorView& part) {
                    EXPECT_EQ(part.data, weight.view().data + next * kCols * 2);
                    next += part.dim(0);
                    ++calls;
                  }});
  EXPECT_EQ(next, kRows);
  EXPECT_GE(calls, 3);
}

TEST(PackOptionsTest, RowsOfAPartOfTheColumnsAreReportedAsOftenAsWholeRows) {
  ThreadPool pool(2);
  constexpr std::int64_t kRows = 12001, kCols = 4096;
  const Tensor weight({kRows, kCols}, DType::kBF16);
  const TensorView part = weight.view().columns(1024, 2048);
  std::int64_t next = 0;
  int calls = 0;
  pack_matrix(part, pool, {.on_packed = [&](const TensorView& rows) {
                EXPECT_EQ(rows.data, part.data + next * kCols * 2);
                EXPECT_EQ(rows.stride(0), kCols);
                next += rows.dim(0);
                ++calls;
              }});
  EXPECT_EQ(next, kRows);
  EXPECT_GE(calls, 3) << "the columns between are in memory as well";
}

TEST(PackOptionsTest, ATypeIsConvertedByRoundingAndNumbersBeyondItsRangeAreAnError) {
  ThreadPool pool(2);
  CpuStream stream(1);
  const Tensor weight = random_floats(33, 70, 5);
  const Tensor ids({1}, DType::kI32);
  const Tensor row({1, 70}, DType::kF32);
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    const PackedMatrix packed = pack_matrix(weight, pool, {.dtype = type});
    EXPECT_EQ(packed.dtype(), type);
    for (std::int32_t r = 0; r < 33; ++r) {
      *ids.view().as<std::int32_t>() = r;
      embedding(ids, packed, row, stream);
      stream.synchronize();
      for (std::int64_t k = 0; k < 70; ++k) {
        const float value = weight.view().as<float>()[r * 70 + k];
        ASSERT_EQ(row.view().as<float>()[k], type == DType::kF16    ? to_f32(to_f16(value))
                                             : type == DType::kBF16 ? to_f32(to_bf16(value))
                                                                    : value);
      }
    }
  }
  weight.view().as<float>()[100] = 1e6F;
  try {
    pack_matrix(weight, pool, {.dtype = DType::kF16, .what = "w"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "w has values beyond the range of f16; choose another --dtype");
  }
}

}  // namespace
}  // namespace minisgl::kernels
