#include "kernels/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/cpu/sampling_row.h"
#include "kernels/philox.h"
#include "kernels/ref/reference.h"
#include "kernels/simd_testing.h"
#include "testing/random.h"
#include "testing/unpack.h"

namespace minisgl::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> floats(const char* file) {
  const std::string bytes =
      testing_util::read_unpacked(std::string(MINISGL_TEST_DATA) + "/sampling/" + file);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct OracleCase {
  std::string label;
  std::span<const float> logits;
  std::span<const float> probs;
  SamplingRow row;
  bool top_k_tie = false;
  bool top_p_tie = false;
  bool near_border = false;  ///< float rounding may move the border of top-p
};

/// The distributions that numpy computed in float64; see tests/data/README.md.
const std::vector<OracleCase>& oracle_cases() {
  static const std::vector<float> logits = floats("logits.f32");
  static const std::vector<float> probs = floats("probs.f32");
  static const std::vector<OracleCase> cases = [] {
    constexpr std::size_t kVocab = 1000;
    std::vector<OracleCase> all;
    std::ifstream file(std::string(MINISGL_TEST_DATA) + "/sampling/cases.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      OracleCase one;
      one.label = line;
      one.logits = std::span(logits).subspan(json["logits"].get<std::size_t>() * kVocab, kVocab);
      one.probs = std::span(probs).subspan(all.size() * kVocab, kVocab);
      one.row = {.temperature = json["temperature"],
                 .top_k = json["top_k"],
                 .top_p = json["top_p"],
                 .min_p = json["min_p"]};
      one.top_k_tie = json["top_k_tie"];
      one.top_p_tie = json["top_p_tie"];
      one.near_border = !json["top_p_margin"].is_null() && json["top_p_margin"] < 1e-5;
      all.push_back(one);
    }
    return all;
  }();
  return cases;
}

std::vector<double> probabilities(std::span<const float> logits, const SamplingRow& row) {
  std::vector<float> weights(logits.size());
  std::vector<std::int32_t> candidates(logits.size());
  const cpu::FilteredRow filtered =
      cpu::filtered_probabilities(logits, row, {.weights = weights, .candidates = candidates});
  std::vector<double> p;
  for (const float weight : filtered.weights) p.push_back(weight / filtered.total);
  return p;
}

/// Tokens of rows that all have the same logits.
std::vector<std::int32_t> draw_many(std::span<const float> logits,
                                    const std::vector<SamplingRow>& rows, CpuStream& stream) {
  const auto num = static_cast<std::int64_t>(rows.size());
  const auto vocab = static_cast<std::int64_t>(logits.size());
  TensorView view(const_cast<float*>(logits.data()), {num, vocab}, DType::kF32);
  view.strides[0] = 0;
  const Tensor tokens({num}, DType::kI32);
  const Tensor workspace({sampling_workspace_bytes(num, vocab)}, DType::kU8);
  sample(view, rows.data(), tokens, workspace, stream);
  stream.synchronize();
  const auto* from = tokens.view().as<std::int32_t>();
  return {from, from + num};
}

class SamplingTest : public SimdTest {
 protected:
  CpuStream stream_{2};
};

TEST(PhiloxTest, GivesThePublishedKnownAnswers) {
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Four{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Four{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(PhiloxTest, UniformUsesBothHalvesOfSeedAndPosition) {
  EXPECT_EQ(philox_uniform(0, 0), 0x6627E8D5 * 0x1p-32);
  const double base = philox_uniform(7, 9);
  EXPECT_NE(base, philox_uniform(7 + (1ULL << 40), 9));
  EXPECT_NE(base, philox_uniform(7, 9 + (1ULL << 40)));
  EXPECT_NE(base, philox_uniform(9, 7));
}

TEST_P(SamplingTest, FilteredProbabilitiesMatchTheOracle) {
  ASSERT_EQ(oracle_cases().size(), 196U);
  for (const OracleCase& c : oracle_cases()) {
    if (c.row.top_k == 1 && c.top_k_tie)
      continue;  // we take the lowest id, the oracle all that tie
    const std::vector<double> p = probabilities(c.logits, c.row);
    for (std::size_t id = 0; id < p.size(); ++id) {
      // Less than 1e-30 of the maximum is nothing in f32.
      if (!c.near_border) {
        ASSERT_TRUE(p[id] > 0 || c.probs[id] <= 1e-30F) << c.label << ", token " << id;
        ASSERT_TRUE(p[id] < 1e-36 || c.probs[id] > 0) << c.label << ", token " << id;
      }
      ASSERT_NEAR(p[id], c.probs[id], c.near_border ? 2e-3 : 1e-5) << c.label << ", token " << id;
    }
  }
}

TEST_P(SamplingTest, FilteredProbabilitiesMatchTheReferenceOnLargeVocabularies) {
  testing_util::Random random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const std::int64_t vocab = random.between(1, 50000);
    Tensor logits({vocab}, DType::kF32);
    const float spread = trial % 4 == 0 ? 0.01F : 6.0F;
    const bool ties = trial % 3 == 0;
    for (std::int64_t i = 0; i < vocab; ++i) {
      const float value = random.uniform() * spread;
      logits.view().as<float>()[i] = ties ? std::round(value * 2) : value;
    }
    if (trial % 5 == 0) logits.view().as<float>()[random.below(vocab)] = -kInf;
    const SamplingRow row{
        .temperature = 0.1F + static_cast<float>(random.below(20)) / 10,
        .top_k = static_cast<std::int32_t>(random.below(3) == 0 ? 0 : random.between(2, 2 * vocab)),
        .top_p = random.below(3) == 0 ? 1.0F : 0.001F + 0.998F * std::abs(random.uniform()),
        .min_p = random.below(2) == 0 ? 0.0F : 0.01F};
    const std::vector<double> expected = ref::filtered_probabilities(logits, row);
    const std::vector<double> actual =
        probabilities({logits.view().as<float>(), static_cast<std::size_t>(vocab)}, row);
    int different = 0;  // tokens at the border of top-p or min-p, by rounding
    for (std::int64_t id = 0; id < vocab; ++id) {
      different += (actual[id] > 0) != (expected[id] > 0);
      ASSERT_NEAR(actual[id], expected[id], 1e-4 * expected[id] + (different > 0 ? 1e-4 : 1e-9))
          << "trial " << trial << ", token " << id;
    }
    ASSERT_LE(different, 2) << "trial " << trial;
  }
}

/// Upper bound of chi-square with `degrees` degrees of freedom that is passed once in a million
/// (Wilson and Hilferty 1931).
double chi_square_limit(double degrees) {
  const double a = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - a + 4.75 * std::sqrt(a), 3);
}

// With one instruction set: all draw the same (below).
TEST(SamplingDrawTest, DrawsFollowTheDistribution) {
  CpuStream stream(2);
  constexpr int kDraws = 20000;
  for (std::size_t i = 0; i < oracle_cases().size(); i += 9) {
    const OracleCase& c = oracle_cases()[i];
    if (c.near_border || c.top_k_tie || c.top_p_tie) continue;
    std::vector<SamplingRow> rows(kDraws, c.row);
    for (int draw = 0; draw < kDraws; ++draw) {
      rows[draw].seed = 1000 + i;
      rows[draw].position = draw;
    }
    std::vector<int> counts(c.logits.size());
    for (const std::int32_t token : draw_many(c.logits, rows, stream)) ++counts[token];
    double chi_square = 0;
    double rest = 0;
    int bins = 0;
    int rest_count = 0;
    for (std::size_t id = 0; id < counts.size(); ++id) {
      const double expected = double{c.probs[id]} * kDraws;
      ASSERT_TRUE(c.probs[id] > 0 || counts[id] == 0) << c.label << ", token " << id;
      if (expected < 5) {
        rest += expected;
        rest_count += counts[id];
        continue;
      }
      ++bins;
      chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
    }
    if (rest >= 5) {
      ++bins;
      chi_square += (rest_count - rest) * (rest_count - rest) / rest;
    }
    if (bins > 1) {
      EXPECT_LT(chi_square, chi_square_limit(bins - 1)) << c.label;
    }
  }
}

TEST_P(SamplingTest, CornerValuesMeanWhatTheySay) {
  const std::vector<float> logits = testing_util::uniform(300, 8);
  const auto argmax =
      static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<SamplingRow> rows;
  for (const float temperature : {0.0F, 1e-9F, 1e-4F, 2.0F})
    for (const float top_p : {0.0F, 1e-9F, 0.5F, 1.0F})
      for (const std::int32_t top_k : {-1, 0, 1, 300, 305})
        rows.push_back({.temperature = temperature,
                        .top_k = top_k,
                        .top_p = top_p,
                        .seed = 5,
                        .position = rows.size()});
  const std::vector<std::int32_t> tokens = draw_many(logits, rows, stream_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_GE(tokens[i], 0);
    ASSERT_LT(tokens[i], 300);
    if (rows[i].temperature < 1 || rows[i].top_p < 0.001F || rows[i].top_k == 1) {
      EXPECT_EQ(tokens[i], argmax) << "T " << rows[i].temperature << ", top_p " << rows[i].top_p
                                   << ", top_k " << rows[i].top_k;
    }
    // Off is off, whichever way it is said: the same numbers give the same token.
    if (rows[i].top_k >= 300) {
      SamplingRow off = rows[i];
      off.top_k = 0;
      EXPECT_EQ(tokens[i], draw_many(logits, {off}, stream_)[0]);
    }
  }
}

TEST_P(SamplingTest, GreedyTakesTheLowestIdOfEquals) {
  for (const std::int64_t vocab : {1, 5, 16, 17, 33, 1000}) {
    for (std::int64_t first = 0; first < vocab; first += 3) {
      std::vector<float> logits(vocab, -1.0F);
      for (std::int64_t i = first; i < vocab; i += 2) logits[i] = 2.5F;
      EXPECT_EQ(draw_many(logits, {{}}, stream_)[0], first) << vocab;
    }
  }
}

TEST_P(SamplingTest, EqualLogitsAreDrawnUniformly) {
  const std::vector<float> logits(64, 0.25F);
  std::vector<SamplingRow> rows(64000, {.temperature = 1, .seed = 11});
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].position = i;
  std::vector<int> counts(64);
  for (const std::int32_t token : draw_many(logits, rows, stream_)) ++counts[token];
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, chi_square_limit(63));
}

TEST_P(SamplingTest, RowsThatAreNoDistributionGiveTheArgmaxOfWhatIsANumber) {
  const float nan = std::nanf("");
  for (const float temperature : {0.0F, 1.0F}) {
    const SamplingRow row{.temperature = temperature, .top_k = 2, .top_p = 0.9F};
    const auto token = [&](const std::vector<float>& logits) {
      return draw_many(logits, {row}, stream_)[0];
    };
    EXPECT_EQ(token({1, nan, 3, 2}), 2);
    EXPECT_EQ(token({nan, nan, nan}), 0);
    EXPECT_EQ(token({-kInf, -kInf, -kInf}), 0);
    EXPECT_EQ(token({-kInf, -kInf, -5}), 2);
    EXPECT_EQ(token({1, kInf, 3, kInf}), 1);
    EXPECT_EQ(token(std::vector<float>(100, nan)), 0);
  }
}

TEST_P(SamplingTest, ADrawDependsOnItsOwnRowAlone) {
  testing_util::Random random(12);
  const std::vector<float> logits = testing_util::uniform(5000, 13);
  std::vector<SamplingRow> rows;
  for (int i = 0; i < 60; ++i) {
    rows.push_back({.temperature = static_cast<float>(random.below(3)) * 0.7F,
                    .top_k = static_cast<std::int32_t>(random.below(60)) - 5,
                    .top_p = random.below(2) == 0 ? 1.0F : 0.8F,
                    .min_p = 0,
                    .seed = random.next(),
                    .position = random.next()});
  }
  const std::vector<std::int32_t> together = draw_many(logits, rows, stream_);
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(draw_many(logits, {rows[i]}, stream_)[0], together[i]) << i;
}

TEST(SamplingSimdTest, EveryInstructionSetDrawsTheSameTokens) {
  const std::vector<float> logits = testing_util::uniform(20011, 14);
  std::vector<SamplingRow> rows;
  for (std::uint64_t i = 0; i < 400; ++i)
    rows.push_back({.temperature = 0.05F + 0.01F * static_cast<float>(i),
                    .top_k = static_cast<std::int32_t>(i % 5 * 100),
                    .top_p = i % 3 == 0 ? 1.0F : 0.9F,
                    .min_p = i % 7 == 0 ? 0.02F : 0.0F,
                    .seed = i,
                    .position = i});
  CpuStream stream(2);
  set_simd("plain");
  const std::vector<std::int32_t> plain = draw_many(logits, rows, stream);
  for (const Simd simd : available_simd()) {
    set_simd(name(simd));
    EXPECT_EQ(draw_many(logits, rows, stream), plain) << name(simd);
  }
  set_simd("auto");
}

TEST(SamplingArgsTest, SaysHowMuchWorkspaceIsMissing) {
  CpuStream stream(1);
  const Tensor logits({1, 100}, DType::kF32), tokens({1}, DType::kI32), workspace({10}, DType::kU8);
  const SamplingRow row;
  try {
    sample(logits, &row, tokens, workspace, stream);
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("workspace has 10 bytes, needs at least 896"));
  }
}

INSTANTIATE_TEST_SUITE_P(AllSimd, SamplingTest, testing::ValuesIn(available_simd()), simd_name);

}  // namespace
}  // namespace minisgl::kernels
