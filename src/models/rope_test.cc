#include "models/rope.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"
#include "minisgl/error.h"
#include "models/config.h"

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

// Oracle: transformers (golden.safetensors: rope_inv_freq, after scaling). It computes in f32.
TEST(RopeTest, MatchesTransformersOnTheTinyModels) {
  for (const char* name :
       {"llama", "llama-f32", "llama-sharded", "llama-tied", "mistral", "qwen2", "qwen3"}) {
    const auto folder = std::filesystem::path(MINISGL_TEST_DATA) / "tiny" / name;
    const ModelConfig config = read_huggingface_config(folder);
    const SafetensorsFile golden(folder / "golden.safetensors");
    const TensorView expected = golden.tensors().at("rope_inv_freq");
    const std::vector<float> actual = rope_inverse_frequencies(config.rope, config.head_dim);
    ASSERT_EQ(expected.shape, (Shape{config.head_dim / 2})) << name;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const float want = expected.as<float>()[i];
      EXPECT_NEAR(actual[i], want, want * 1e-6F) << name << " " << i;
    }
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
