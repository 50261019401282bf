#include "models/rope.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "minisgl/error.h"
#include "models/config.h"
#include "testing/tiny_model.h"

namespace minisgl::models {
namespace {

// Expected values: computed in double from the published formula for Llama 3.1's parameters.
TEST(RopeTest, Llama3KeepsShortWavesStretchesLongOnesAndMixesBetween) {
  RopeConfig rope{.theta = 500000.0};
  const std::vector<float> plain = rope_inverse_frequencies(rope, 128);
  rope.kind = RopeKind::kLlama3;
  rope.factor = 8.0;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_position = 8192;
  const std::vector<float> scaled = rope_inverse_frequencies(rope, 128);
  ASSERT_EQ(scaled.size(), 64U);
  const struct {
    std::size_t i;
    double plain, scaled;
  } kExpected[] = {{0, 1.0, 1.0},
                   {28, 3.211445995e-03, 3.211445995e-03},
                   {29, 2.616099253e-03, 2.166570764e-03},
                   {31, 1.736046702e-03, 8.567514129e-04},
                   {34, 9.384738704e-04, 1.785078128e-04},
                   {35, 7.644969883e-04, 9.556212354e-05},
                   {63, 2.455140791e-06, 3.068925989e-07}};
  for (const auto& e : kExpected) {
    EXPECT_NEAR(plain[e.i], e.plain, e.plain * 1e-7) << e.i;
    EXPECT_NEAR(scaled[e.i], e.scaled, e.scaled * 1e-7) << e.i;
  }
}

void expect_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t max_seq_len,
                        const std::map<std::size_t, double>& expected) {
  const std::vector<float> actual = rope_inverse_frequencies(rope, head_dim, max_seq_len);
  for (const auto& [i, value] : expected) EXPECT_NEAR(actual.at(i), value, value * 1e-6) << i;
}

// Expected values: transformers 5.24, in f32, for the scaling that Qwen3 recommends.
TEST(RopeTest, YarnKeepsShortWavesStretchesLongOnesAndMixesBetween) {
  RopeConfig rope{
      .theta = 1e6, .kind = RopeKind::kYarn, .factor = 4.0, .original_max_position = 32768};
  expect_frequencies(rope, 128, 0,
                     {{0, 1.0},
                      {23, 6.978305988e-03},
                      {24, 5.375321489e-03},
                      {30, 1.064360957e-03},
                      {35, 2.462583943e-04},
                      {39, 6.490394298e-05},
                      {40, 4.445698505e-05},
                      {63, 3.102344408e-07}});
  rope.truncate = false;
  rope.beta_fast = 16;
  rope.beta_slow = 2;
  expect_frequencies(rope, 128, 0,
                     {{24, 5.623413250e-03},
                      {30, 1.157093560e-03},
                      {35, 1.894901943e-04},
                      {39, 5.516835517e-05},
                      {40, 4.445698505e-05}});
}

// Expected values: transformers 5.24 with seq_len 8192.
TEST(RopeTest, DynamicIsPlainUpToTheOriginalContextAndStretchedForMore) {
  const RopeConfig rope{.kind = RopeKind::kDynamic, .factor = 2.0, .original_max_position = 4096};
  for (const std::int64_t length : {0, 100, 4096})
    EXPECT_EQ(rope_inverse_frequencies(rope, 128, length), rope_inverse_frequencies({}, 128));
  expect_frequencies(rope, 128, 8192,
                     {{0, 1.0},
                      {1, 8.509942889e-01},
                      {20, 3.967646509e-02},
                      {40, 1.574221649e-03},
                      {63, 3.849273344e-05}});
}

// Oracle: transformers (golden.safetensors: rope_inv_freq, after scaling). It computes in f32.
TEST(RopeTest, MatchesTransformersOnTheTinyModels) {
  for (const char* name : {"llama", "llama-f32", "llama-sharded", "llama-tied", "mistral", "qwen2",
                           "qwen3", "qwen3-yarn"}) {
    const auto folder = testing_util::tiny_model(name);
    const ModelConfig config = read_huggingface_config(folder);
    const SafetensorsFile golden(folder / "golden.safetensors");
    const TensorView expected = golden.tensors().at("rope_inv_freq");
    const std::vector<float> actual = rope_inverse_frequencies(config.rope, config.head_dim);
    ASSERT_EQ(expected.shape, (Shape{config.head_dim / 2})) << name;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const float want = expected.as<float>()[i];
      EXPECT_NEAR(actual[i], want, want * 1e-6F) << name << " " << i;
    }
    std::ifstream json(folder / "golden.json");
    EXPECT_NEAR(config.rope.attention_factor,
                nlohmann::json::parse(json)["rope_attention_scaling"].get<double>(), 1e-12);
  }
}

TEST(RopeTest, LinearAndDivisorsDivide) {
  const std::vector<float> plain = rope_inverse_frequencies({}, 4);
  EXPECT_FLOAT_EQ(plain[0], 1.0F);
  EXPECT_FLOAT_EQ(plain[1], 0.01F);
  const std::vector<float> linear =
      rope_inverse_frequencies({.kind = RopeKind::kLinear, .factor = 4.0}, 4);
  EXPECT_FLOAT_EQ(linear[0], 0.25F);
  EXPECT_FLOAT_EQ(linear[1], 0.0025F);
  const std::vector<float> divided = rope_inverse_frequencies({.divisors = {1.0F, 2.0F}}, 4);
  EXPECT_FLOAT_EQ(divided[0], 1.0F);
  EXPECT_FLOAT_EQ(divided[1], 0.005F);
  EXPECT_THROW(rope_inverse_frequencies({.divisors = {1.0F}}, 4), Error);
  EXPECT_THROW(rope_inverse_frequencies({}, 3), Error);
}

}  // namespace
}  // namespace minisgl::models
