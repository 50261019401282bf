// Draws on a GPU against exact distributions. Without a GPU every test is skipped.

#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/reference.h"
#include "testing/gpu.h"
#include "testing/random.h"

namespace minisgl::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class GpuSamplingTest : public testing_util::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = cuda::make_stream(kGpu);
  }

  std::vector<std::int32_t> draw(TensorView logits, const std::vector<SamplingRow>& rows) {
    const auto count = static_cast<std::int64_t>(rows.size());
    const Tensor gpu_logits = testing_util::copy_to(logits, kGpu, *stream_);
    const Tensor tokens({count}, DType::kI32, {.device = kGpu});
    const Tensor workspace({sampling_workspace_bytes(count, logits.dim(1), kGpu)}, DType::kU8,
                           {.device = kGpu});
    const Buffer gpu_rows(rows.size() * sizeof(SamplingRow), {.device = kGpu});
    stream_->copy(gpu_rows.data(), rows.data(), gpu_rows.size());
    sample(gpu_logits, reinterpret_cast<const SamplingRow*>(gpu_rows.data()), tokens, workspace,
           *stream_);
    const Tensor host = testing_util::copy_to(tokens, kCpu, *stream_);
    const auto* at = host.view().as<std::int32_t>();
    return {at, at + count};
  }

  /// Every token is one that the exact distribution has, and lies where the row's uniform number
  /// says.
  void expect_draws(TensorView logits, const std::vector<SamplingRow>& rows) {
    const std::vector<std::int32_t> tokens = draw(logits, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i) + ": temperature " +
                   std::to_string(rows[i].temperature) + ", top_k " +
                   std::to_string(rows[i].top_k) + ", top_p " + std::to_string(rows[i].top_p) +
                   ", min_p " + std::to_string(rows[i].min_p));
      const auto s = static_cast<std::int64_t>(i);
      const std::vector<double> p =
          ref::filtered_probabilities(logits.slice(s, s + 1).reshape({logits.dim(1)}), rows[i]);
      ASSERT_GE(tokens[i], 0);
      ASSERT_LT(tokens[i], logits.dim(1));
      ASSERT_GT(p[tokens[i]], 0) << "token " << tokens[i] << " is filtered out";
      double before = 0;
      for (std::int32_t id = 0; id < tokens[i]; ++id) before += p[id];
      const double uniform = philox_uniform(rows[i].seed, rows[i].position);
      constexpr double kRounding = 1e-5;
      EXPECT_GE(uniform, before - kRounding) << "token " << tokens[i];
      EXPECT_LE(uniform, before + p[tokens[i]] + kRounding) << "token " << tokens[i];
    }
  }

  std::unique_ptr<Stream> stream_;
};

Tensor random_logits(std::int64_t rows, std::int64_t vocab, std::uint64_t seed, float amplitude) {
  Tensor logits({rows, vocab}, DType::kF32);
  testing_util::Random random(seed);
  for (std::int64_t i = 0; i < rows * vocab; ++i) {
    // A sum of uniforms: most logits in the middle, few far out, as a model's are.
    float sum = 0;
    for (int j = 0; j < 4; ++j) sum += random.uniform();
    logits.view().as<float>()[i] = amplitude * sum;
  }
  return logits;
}

TEST_F(GpuSamplingTest, ArgmaxTakesTheLowestIdOfEquals) {
  for (const std::int64_t vocab : {1, 5, 640, 4096, 4097, 49152, 151936}) {
    const Tensor logits = random_logits(8, vocab, 1, 3);
    std::vector<SamplingRow> rows(8);
    std::vector<std::int32_t> expected;
    for (std::int64_t s = 0; s < 8; ++s) {
      float* row = logits.view().as<float>() + s * vocab;
      const std::int64_t low = s * vocab / 9;
      row[low] = row[vocab - 1] = row[(low + vocab) / 2] = 50;
      expected.push_back(static_cast<std::int32_t>(low));
      rows[s].seed = 7 + s;
    }
    EXPECT_EQ(draw(logits, rows), expected) << vocab;
    for (SamplingRow& row : rows) row = {.temperature = 2, .top_k = 1, .seed = 3};
    EXPECT_EQ(draw(logits, rows), expected) << "top_k 1, " << vocab;
    for (SamplingRow& row : rows) row = {.temperature = 2, .top_p = 0, .seed = 3};
    EXPECT_EQ(draw(logits, rows), expected) << "top_p 0, " << vocab;
  }
}

TEST_F(GpuSamplingTest, DrawsFollowTheExactDistributionOfEveryFilter) {
  for (const std::int64_t vocab : {5, 640, 4097, 49152, 151936}) {
    std::vector<SamplingRow> rows;
    testing_util::Random random(2);
    for (const float temperature : {0.3F, 0.8F, 1.0F, 1.7F})
      for (const std::int32_t top_k : {0, 2, 50, 1000})
        for (const float top_p : {1.0F, 0.95F, 0.5F})
          for (const float min_p : {0.0F, 0.05F})
            rows.push_back({temperature, top_k, top_p, min_p, random.next(), random.next()});
    SCOPED_TRACE(std::to_string(vocab) + " tokens");
    expect_draws(random_logits(static_cast<std::int64_t>(rows.size()), vocab, vocab, 3), rows);
  }
}

TEST_F(GpuSamplingTest, DrawsFromSharpDistributionsAreAsExactAsFromFlatOnes) {
  // The candidates of these fit shared memory, or just do not; those above mostly do not.
  for (const std::int64_t vocab : {1025, 4097, 151936}) {
    for (const float amplitude : {6.0F, 12.0F, 40.0F}) {
      std::vector<SamplingRow> rows;
      testing_util::Random random(vocab);
      for (const std::int32_t top_k : {0, 1, 7, 900, 1024, 1100})
        for (const float top_p : {1.0F, 0.999F, 0.9F, 0.01F})
          for (const float min_p : {0.0F, 0.002F, 0.3F, 1.0F})
            rows.push_back({0.7F, top_k, top_p, min_p, random.next(), random.next()});
      SCOPED_TRACE(std::to_string(vocab) + " tokens, amplitude " + std::to_string(amplitude));
      expect_draws(random_logits(static_cast<std::int64_t>(rows.size()), vocab, 6, amplitude),
                   rows);
    }
  }
}

TEST_F(GpuSamplingTest, EqualLogitsAreKeptAndCutAsTheCpuDoes) {
  constexpr std::int64_t kVocab = 5000;
  std::vector<SamplingRow> rows;
  testing_util::Random random(3);
  for (int i = 0; i < 64; ++i)
    rows.push_back(
        {1.0F, i % 3 == 0 ? 40 : 0, i % 2 == 0 ? 0.7F : 0.99F, 0, random.next(), random.next()});
  Tensor logits({64, kVocab}, DType::kF32);
  for (std::int64_t i = 0; i < logits.view().numel(); ++i)
    logits.view().as<float>()[i] = static_cast<float>(random.below(4));
  expect_draws(logits, rows);
}

TEST_F(GpuSamplingTest, LogitsThatAreNoDistributionGiveTheArgmaxOfWhatIsNotNan) {
  constexpr std::int64_t kVocab = 9000;
  Tensor logits = random_logits(5, kVocab, 4, 2);
  float* x = logits.view().as<float>();
  x[0 * kVocab + 17] = std::nanf("");
  x[0 * kVocab + 8001] = 30;
  x[1 * kVocab + 5000] = kInfinity;
  std::fill_n(x + 2 * kVocab, kVocab, std::nanf(""));
  std::fill_n(x + 3 * kVocab, kVocab, -kInfinity);
  std::fill_n(x + 4 * kVocab, kVocab, -kInfinity);
  x[4 * kVocab + 4500] = -3;
  for (const std::int32_t top_k : {0, 10}) {
    const std::vector<SamplingRow> rows(5, {.temperature = 1, .top_k = top_k, .seed = 9});
    EXPECT_EQ(draw(logits, rows), (std::vector<std::int32_t>{8001, 5000, 0, 0, 4500}));
  }
}

TEST_F(GpuSamplingTest, ManyDrawsFromOneRowHaveItsFrequencies) {
  constexpr std::int64_t kVocab = 12;
  constexpr int kDraws = 1 << 14;
  const Tensor one = random_logits(1, kVocab, 5, 1.5F);
  Tensor logits({kDraws, kVocab}, DType::kF32);
  std::vector<SamplingRow> rows(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    std::copy_n(one.view().as<float>(), kVocab, logits.view().as<float>() + i * kVocab);
    rows[i] = {.temperature = 0.9F, .seed = 11, .position = static_cast<std::uint64_t>(i)};
  }
  std::vector<double> counts(kVocab);
  for (const std::int32_t token : draw(logits, rows)) counts.at(token) += 1;
  const std::vector<double> p = ref::filtered_probabilities(one.view().reshape({kVocab}), rows[0]);
  double chi_squared = 0;
  for (std::int64_t i = 0; i < kVocab; ++i)
    chi_squared += std::pow(counts[i] - kDraws * p[i], 2) / (kDraws * p[i]);
  EXPECT_LT(chi_squared, 31.3) << "11 degrees of freedom: one in a thousand";
}

}  // namespace
}  // namespace minisgl::kernels
