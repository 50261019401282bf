#include "kernels/elementwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/simd_testing.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// Random rows inside wider ones, whose other elements must stay as they are.
struct Rows {
  Rows(std::int64_t rows, std::int64_t width, std::uint64_t seed)
      : wide({rows, width + 5}, DType::kF32), view(wide.view().columns(2, 2 + width)) {
    testing_util::Random random(seed);
    for (std::int64_t i = 0; i < wide.view().numel(); ++i)
      wide.view().as<float>()[i] = random.uniform() * 20;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < width; ++i) before.push_back(at(row, i));
  }
  float at(std::int64_t row, std::int64_t i) const {
    return view.as<float>()[row * view.stride(0) + i];
  }
  Tensor wide;
  TensorView view;
  std::vector<float> before;
};

class ElementwiseTest : public SimdTest {
 protected:
  /// after(before, other before) for each element.
  void expect(const Rows& rows, const Rows& other, double tolerance,
              const std::function<double(double, double)>& after) {
    stream_.synchronize();
    const std::int64_t width = rows.view.dim(1);
    for (std::int64_t row = 0; row < rows.view.dim(0); ++row)
      for (std::int64_t i = 0; i < width; ++i) {
        const auto n = static_cast<std::size_t>(row * width + i);
        const double want = after(rows.before[n], other.before[n]);
        ASSERT_NEAR(rows.at(row, i), want, tolerance * (std::abs(want) + 1))
            << "row " << row << " of width " << width << ", element " << i;
      }
  }
  CpuStream stream_{2};
};

constexpr std::int64_t kWidths[] = {1, 7, 48, 577, 40000};

TEST_P(ElementwiseTest, ScaleMultipliesEveryElementOfStridedRows) {
  for (const std::int64_t width : kWidths) {
    const Rows x(5, width, 1);
    scale(x.view, 0.22F, stream_);
    expect(x, x, 1e-7, [](double a, double) { return 0.22F * a; });
  }
}

TEST_P(ElementwiseTest, AddAndCopyLeavesTheSumInBoth) {
  for (const std::int64_t width : kWidths) {
    const Rows x(5, width, 1);
    const Rows residual(5, width, 2);
    add_and_copy(x.view, residual.view, 0.6F, stream_);
    expect(residual, x, 1e-6, [](double r, double a) { return r + 0.6F * a; });
    expect(x, residual, 1e-6, [](double a, double r) { return r + 0.6F * a; });
  }
}

TEST_P(ElementwiseTest, SoftcapIsTheCapTimesTanh) {
  for (const std::int64_t width : kWidths) {
    const Rows x(3, width, 1);
    softcap(x.view, 30.0F, stream_);
    expect(x, x, 1e-6, [](double a, double) { return 30.0 * std::tanh(a / 30.0); });
  }
}

TEST_P(ElementwiseTest, ElementsBesideTheRowsStayAsTheyAre) {
  const Rows x(4, 11, 1);
  const Rows same(4, 11, 1);
  const Rows residual(4, 11, 2);
  scale(x.view, 3, stream_);
  add_and_copy(x.view, residual.view, 2, stream_);
  softcap(x.view, 1, stream_);
  stream_.synchronize();
  for (std::int64_t row = 0; row < 4; ++row)
    for (const std::int64_t i : {0, 1, 13, 14, 15})
      EXPECT_EQ(x.wide.view().as<float>()[row * 16 + i],
                same.wide.view().as<float>()[row * 16 + i]);
}

TEST_P(ElementwiseTest, ZeroTokensAreANoOp) {
  const Tensor none({0, 8}, DType::kF32);
  scale(none, 2, stream_);
  add_and_copy(none, Tensor({0, 8}, DType::kF32), 1, stream_);
  softcap(none, 2, stream_);
  stream_.synchronize();
}

TEST_P(ElementwiseTest, WrongArgumentsAreNamed) {
  const Tensor x({2, 8}, DType::kF32), other({2, 9}, DType::kF32);
  EXPECT_THAT(message_of([&] { add_and_copy(x, other, 1, stream_); }),
              testing::HasSubstr("x has shape [2, 8] and type f32, expected [2, 9]"));
  EXPECT_THAT(message_of([&] { add_and_copy(x, x, 1, stream_); }),
              testing::HasSubstr("x and residual must not be the same memory"));
  EXPECT_THAT(message_of([&] { softcap(x, 0, stream_); }),
              testing::HasSubstr("a soft cap must be positive, not 0"));
}

INSTANTIATE_TEST_SUITE_P(AllSimd, ElementwiseTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
