#include "kernels/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/ref/reference.h"
#include "kernels/simd_testing.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

using testing_util::uniform;

Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  Tensor tensor(shape, DType::kF32);
  std::memcpy(tensor.view().data, values.data(), values.size() * sizeof(float));
  return tensor;
}

class NormTest : public SimdTest {
 protected:
  CpuStream stream_{2};
};

TEST_P(NormTest, RmsNormMatchesTheReferenceForWidthsThatDoNotFillAVector) {
  for (const std::int64_t hidden : {1, 3, 15, 16, 17, 63, 64, 65, 131, 576, 1000}) {
    const Tensor x = tensor_of(uniform(5 * hidden, 1), {5, hidden});
    const Tensor w = tensor_of(uniform(hidden, 2), {hidden});
    const Tensor y({5, hidden}, DType::kF32);
    const Tensor expected({5, hidden}, DType::kF32);
    rms_norm(x, w, 1e-6F, y, stream_);
    stream_.synchronize();
    ref::rms_norm(x, w, 1e-6F, expected);
    for (std::int64_t i = 0; i < 5 * hidden; ++i) {
      ASSERT_NEAR(y.view().as<float>()[i], expected.view().as<float>()[i], 2e-6)
          << "hidden " << hidden << ", element " << i;
    }
  }
}

TEST_P(NormTest, FusedAddAlsoUpdatesTheResidualExactly) {
  constexpr std::int64_t kTokens = 7, kHidden = 577;
  const Tensor x = tensor_of(uniform(kTokens * kHidden, 3), {kTokens, kHidden});
  const Tensor residual = tensor_of(uniform(kTokens * kHidden, 4), {kTokens, kHidden});
  const Tensor x2 = tensor_of(uniform(kTokens * kHidden, 3), {kTokens, kHidden});
  const Tensor residual2 = tensor_of(uniform(kTokens * kHidden, 4), {kTokens, kHidden});
  const Tensor w = tensor_of(uniform(kHidden, 5), {kHidden});
  fused_add_rms_norm(x, residual, w, 1e-5F, stream_);
  stream_.synchronize();
  ref::fused_add_rms_norm(x2, residual2, w, 1e-5F);
  EXPECT_EQ(std::memcmp(residual.view().data, residual2.view().data, residual.view().bytes()), 0);
  for (std::int64_t i = 0; i < kTokens * kHidden; ++i)
    ASSERT_NEAR(x.view().as<float>()[i], x2.view().as<float>()[i], 3e-6) << i;
}

TEST_P(NormTest, FusedAddScalesWhatItAddsAndAScaleOfOneChangesNoBit) {
  constexpr std::int64_t kTokens = 3, kHidden = 131;
  for (const float x_scale : {0.22F, 1.0F}) {
    const Tensor x = tensor_of(uniform(kTokens * kHidden, 3), {kTokens, kHidden});
    const Tensor residual = tensor_of(uniform(kTokens * kHidden, 4), {kTokens, kHidden});
    const Tensor x2 = tensor_of(uniform(kTokens * kHidden, 3), {kTokens, kHidden});
    const Tensor residual2 = tensor_of(uniform(kTokens * kHidden, 4), {kTokens, kHidden});
    const Tensor w = tensor_of(uniform(kHidden, 5), {kHidden});
    fused_add_rms_norm(x, residual, w, 1e-5F, stream_, x_scale);
    stream_.synchronize();
    if (x_scale == 1.0F) {
      fused_add_rms_norm(x2, residual2, w, 1e-5F, stream_);
      stream_.synchronize();
      EXPECT_EQ(std::memcmp(x.view().data, x2.view().data, x.view().bytes()), 0);
    } else {
      ref::fused_add_rms_norm(x2, residual2, w, 1e-5F, x_scale);
    }
    for (std::int64_t i = 0; i < kTokens * kHidden; ++i) {
      ASSERT_NEAR(residual.view().as<float>()[i], residual2.view().as<float>()[i], 1e-7) << i;
      ASSERT_NEAR(x.view().as<float>()[i], x2.view().as<float>()[i], 3e-6) << i;
    }
  }
}

TEST_P(NormTest, ARowIsTheSameAloneAndAmongOthersAndInPlace) {
  constexpr std::int64_t kTokens = 300, kHidden = 131;
  const Tensor x = tensor_of(uniform(kTokens * kHidden, 6), {kTokens, kHidden});
  const Tensor w = tensor_of(uniform(kHidden, 7), {kHidden});
  const Tensor all({kTokens, kHidden}, DType::kF32);
  const Tensor one({1, kHidden}, DType::kF32);
  rms_norm(x, w, 1e-6F, all, stream_);
  rms_norm(x.view().slice(298, 299), w, 1e-6F, one, stream_);
  rms_norm(x, w, 1e-6F, x, stream_);
  stream_.synchronize();
  EXPECT_EQ(std::memcmp(one.view().data, all.view().slice(298, 299).data, one.view().bytes()), 0);
  EXPECT_EQ(std::memcmp(x.view().data, all.view().data, all.view().bytes()), 0);
}

TEST_P(NormTest, ReadsAndWritesRowsThatAreStrided) {
  const Tensor wide = tensor_of(uniform(3 * 100, 8), {3, 100});
  const Tensor w = tensor_of(uniform(40, 9), {40});
  const Tensor y({3, 90}, DType::kF32);
  const Tensor expected({3, 40}, DType::kF32);
  rms_norm(wide.view().columns(10, 50), w, 1e-6F, y.view().columns(5, 45), stream_);
  stream_.synchronize();
  ref::rms_norm(wide.view().columns(10, 50), w, 1e-6F, expected);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 90; ++i) {
      const bool inside = i >= 5 && i < 45;
      ASSERT_NEAR(y.view().as<float>()[row * 90 + i],
                  inside ? expected.view().as<float>()[row * 40 + i - 5] : 0.0F, 2e-6);
    }
  }
}

TEST_P(NormTest, ZeroTokensAreANoOp) {
  const Tensor w({8}, DType::kF32);
  rms_norm(Tensor({0, 8}, DType::kF32), w, 1e-6F, Tensor({0, 8}, DType::kF32), stream_);
  stream_.synchronize();
}

TEST_P(NormTest, RejectsAWeightOfAnotherWidthAndSaysBoth) {
  const Tensor x({1, 8}, DType::kF32), w({4}, DType::kF32);
  try {
    rms_norm(x, w, 1e-6F, x, stream_);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("hidden=8 but weight has 4"));
  }
}

TEST_P(NormTest, RejectsAResidualThatIsX) {
  const Tensor x({1, 8}, DType::kF32), w({8}, DType::kF32);
  try {
    fused_add_rms_norm(x, x, w, 1e-6F, stream_);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("x and residual must not be the same memory"));
  }
}

INSTANTIATE_TEST_SUITE_P(AllSimd, NormTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
