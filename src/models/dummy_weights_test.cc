#include "models/dummy_weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "models/model.h"
#include "testing/checkpoint.h"

namespace minisgl::models {
namespace {

namespace fs = std::filesystem;

TEST(DummyWeightsTest, AreNormalWithDeviation002AndNormsAreOnes) {
  const layers::WantedWeights wanted{{"a.weight", Shape{300, 401}},
                                     {"b.weight", Shape{300, 401}},
                                     {"post_attention_layernorm.weight", Shape{7}}};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto source = dummy_weights(wanted, type);
    const std::vector<float> values = testing_util::values_of(source->find("a.weight"));
    double sum = 0, squares = 0, inner = 0;
    for (const float value : values) {
      sum += value;
      squares += double{value} * value;
      inner += std::abs(value) < 0.02 ? 1 : 0;
    }
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(sum / n, 0, 3e-4);                           // deviation 0.02 / sqrt(n) = 6e-5
    EXPECT_NEAR(std::sqrt(squares / n), 0.02, 3e-4);         // 0.02 / sqrt(2 n) = 4e-5
    EXPECT_NEAR(inner / n, std::erf(std::sqrt(0.5)), 0.01);  // 68 % within one deviation
    EXPECT_NE(values, testing_util::values_of(source->find("b.weight")));
    source->drop(source->find("a.weight"));
    EXPECT_EQ(values, testing_util::values_of(source->find("a.weight"))) << "made again, the same";
    for (const float one : testing_util::values_of(source->find("post_attention_layernorm.weight")))
      EXPECT_EQ(one, 1.0F);
    EXPECT_TRUE(source->find("c.weight").empty());
  }
}

TEST(DummyWeightsTest, AModelIsMadeOfConfigJsonAlone) {
  const fs::path folder =
      fs::temp_directory_path() / ("minisgl_dummy_test_" + std::to_string(::getpid()));
  for (const std::string& name : testing_util::models_for_gguf()) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::copy(testing_util::tiny_model(name) / "config.json", folder / "config.json");
    std::int64_t done = 0, total = 0;
    const auto model = load_model(
        folder, {.dummy_weights = true, .on_progress = [&](std::int64_t d, std::int64_t t) {
                   done = d;
                   total = t;
                 }});
    EXPECT_EQ(model->config().vocab_size, read_model_config(folder).vocab_size) << name;
    EXPECT_EQ(done, total) << name;
    EXPECT_GT(total, 0) << name;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace minisgl::models
