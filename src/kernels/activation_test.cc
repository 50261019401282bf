#include "kernels/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/table.h"
#include "kernels/ref/reference.h"
#include "kernels/simd_testing.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

class ActivationTest : public SimdTest {
 protected:
  CpuStream stream_{2};
};

/// |actual - expected| in units of the last place of a float near `expected`.
double ulps(float actual, double expected) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(actual - expected) / unit;
}

TEST_P(ActivationTest, ExpIsWithinTwoUnitsInTheLastPlaceFromUnderflowToOverflow) {
  std::vector<float> x;
  for (float value = -103.9F; value < 88.72F; value += 0.00137F) x.push_back(value);
  std::vector<float> y(x.size());
  cpu_kernels().exp(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(ulps(y[i], std::exp(double{x[i]})), 2.0) << "exp(" << x[i] << ") = " << y[i];
}

TEST_P(ActivationTest, ExpOfSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float x[] = {0.0F, -0.0F, -kInf, kInf, std::nanf(""), 1e30F, -1e30F, 1e-40F};
  float y[8];
  cpu_kernels().exp(x, 8, y);
  EXPECT_EQ(y[0], 1.0F);
  EXPECT_EQ(y[1], 1.0F);
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_EQ(y[3], kInf);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], kInf);
  EXPECT_EQ(y[6], 0.0F);
  EXPECT_EQ(y[7], 1.0F);
}

TEST_P(ActivationTest, SiluAndMulMatchesTheReference) {
  for (const std::int64_t width : {1, 7, 16, 31, 192, 1536, 20000}) {
    const std::int64_t tokens = 5;
    Tensor gate_up({tokens, 2 * width}, DType::kF32);
    testing_util::Random random(width);
    for (std::int64_t i = 0; i < gate_up.view().numel(); ++i)
      gate_up.view().as<float>()[i] = random.uniform() * 20;
    const Tensor y({tokens, width}, DType::kF32);
    const Tensor expected({tokens, width}, DType::kF32);
    silu_and_mul(gate_up, y, stream_);
    stream_.synchronize();
    ref::silu_and_mul(gate_up, expected);
    for (std::int64_t i = 0; i < tokens * width; ++i) {
      const float want = expected.view().as<float>()[i];
      ASSERT_NEAR(y.view().as<float>()[i], want, 1e-6 * std::abs(want) + 1e-30)
          << width << " " << i;
    }
  }
}

TEST_P(ActivationTest, GeluTanhAndMulMatchesTheReference) {
  for (const std::int64_t width : {1, 7, 16, 31, 192, 1536, 20000}) {
    const std::int64_t tokens = 5;
    Tensor gate_up({tokens, 2 * width}, DType::kF32);
    testing_util::Random random(width);
    for (std::int64_t i = 0; i < gate_up.view().numel(); ++i)
      gate_up.view().as<float>()[i] = random.uniform() * 8;
    const Tensor y({tokens, width}, DType::kF32);
    const Tensor expected({tokens, width}, DType::kF32);
    gelu_tanh_and_mul(gate_up, y, stream_);
    stream_.synchronize();
    ref::gelu_tanh_and_mul(gate_up, expected);
    for (std::int64_t i = 0; i < tokens * width; ++i) {
      const float gate = gate_up.view().as<float>()[i / width * 2 * width + i % width];
      const float up = gate_up.view().as<float>()[i / width * 2 * width + width + i % width];
      const float want = expected.view().as<float>()[i];
      ASSERT_NEAR(y.view().as<float>()[i], want,
                  1e-6 * std::abs(want) + 3e-7 * std::abs(gate * up) + 1e-30)
          << width << " " << i;
    }
  }
}

TEST_P(ActivationTest, GeluTanhOfLargeGatesIsTheGateOrZero) {
  Tensor gate_up({1, 8}, DType::kF32);
  const float values[] = {-1000, -30, 30, 1000, 1, 1, 1, 1};
  std::memcpy(gate_up.view().data, values, sizeof(values));
  const Tensor y({1, 4}, DType::kF32);
  gelu_tanh_and_mul(gate_up, y, stream_);
  stream_.synchronize();
  const float* actual = y.view().as<float>();
  EXPECT_EQ(actual[0], 0.0F);
  EXPECT_EQ(actual[1], 0.0F);
  EXPECT_EQ(actual[2], 30.0F);
  EXPECT_EQ(actual[3], 1000.0F);
}

TEST_P(ActivationTest, LargeGatesNeitherOverflowNorVanish) {
  Tensor gate_up({1, 8}, DType::kF32);
  const float values[] = {-1000, -90, 90, 1000, 1, 1, 1, 1};
  std::memcpy(gate_up.view().data, values, sizeof(values));
  const Tensor y({1, 4}, DType::kF32);
  silu_and_mul(gate_up, y, stream_);
  stream_.synchronize();
  const float* actual = y.view().as<float>();
  EXPECT_EQ(actual[0], 0.0F);
  EXPECT_NEAR(actual[1], 0.0F, 1e-36);
  EXPECT_EQ(actual[2], 90.0F);
  EXPECT_EQ(actual[3], 1000.0F);
}

TEST_P(ActivationTest, AnElementIsTheSameAtEveryPlaceInAVector) {
  constexpr std::int64_t kWidth = 53;
  Tensor gate_up({1, 2 * kWidth}, DType::kF32);
  for (std::int64_t i = 0; i < kWidth; ++i) {
    gate_up.view().as<float>()[i] = -1.2345678F;
    gate_up.view().as<float>()[kWidth + i] = 0.7654321F;
  }
  const Tensor y({1, kWidth}, DType::kF32);
  silu_and_mul(gate_up, y, stream_);
  stream_.synchronize();
  for (std::int64_t i = 1; i < kWidth; ++i)
    ASSERT_EQ(y.view().as<float>()[i], y.view().as<float>()[0]) << i;
}

TEST_P(ActivationTest, RejectsAGateOfAnotherWidth) {
  const Tensor gate_up({2, 10}, DType::kF32), y({2, 4}, DType::kF32);
  try {
    silu_and_mul(gate_up, y, stream_);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("gate_up has shape [2, 10] and type f32, expected [2, 8]"));
  }
}

INSTANTIATE_TEST_SUITE_P(AllSimd, ActivationTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
