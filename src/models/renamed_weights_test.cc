#include "models/renamed_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "minisgl/error.h"
#include "testing/random.h"

namespace minisgl::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// f32 tensors in memory.
class MemoryWeights final : public WeightSource {
 public:
  explicit MemoryWeights(const std::map<std::string, Shape>& shapes) {
    std::uint64_t seed = 0;
    for (const auto& [name, shape] : shapes) {
      Tensor tensor(shape, DType::kF32);
      const std::vector<float> values = testing_util::uniform(shape.numel(), ++seed);
      std::copy(values.begin(), values.end(), tensor.view().as<float>());
      tensors_.emplace(name, std::move(tensor));
    }
  }
  TensorView find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? TensorView() : found->second.view();
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  void drop(const TensorView& /*tensor*/) const override {}
  std::shared_ptr<const void> share(const TensorView& /*tensor*/) const override { return nullptr; }
  std::vector<std::string> file_faults() const override { return {}; }
  std::string describe() const override { return "memory"; }
  bool has_paired_qk_rows() const override { return true; }

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
};

std::vector<float> values_of(const TensorView& view) {
  EXPECT_TRUE(view.is_contiguous());
  return {view.as<float>(), view.as<float>() + view.numel()};
}

/// Rows [begin, end) of matrix `expert` of a stack.
std::vector<float> part_of(const TensorView& stack, std::int64_t expert, std::int64_t begin,
                           std::int64_t end) {
  const float* matrix = stack.as<float>() + expert * stack.dim(1) * stack.dim(2);
  return {matrix + begin * stack.dim(2), matrix + end * stack.dim(2)};
}

TEST(RenamedWeightsTest, ACheckpointWithPublishedNamesStaysAsItIs) {
  auto source = std::make_unique<MemoryWeights>(std::map<std::string, Shape>{
      {"model.norm.weight", {4}}, {"model.layers.0.mlp.experts.0.up_proj.weight", {2, 4}}});
  const WeightSource* const before = source.get();
  EXPECT_EQ(with_published_names(std::move(source)).get(), before);
}

TEST(RenamedWeightsTest, StackedExpertsBecomeMatricesOfOneExpertEach) {
  const std::string layer = "model.layers.2.mlp.experts.";
  auto source = std::make_unique<MemoryWeights>(
      std::map<std::string, Shape>{{layer + "gate_proj.weight", {2, 3, 4}},
                                   {layer + "down_proj.weight", {2, 4, 3}},
                                   {"model.norm.weight", {4}}});
  const TensorView gate = source->find(layer + "gate_proj.weight");
  const auto renamed = with_published_names(std::move(source));
  EXPECT_THAT(
      renamed->names(),
      ElementsAre(layer + "0.down_proj.weight", layer + "0.gate_proj.weight",
                  layer + "1.down_proj.weight", layer + "1.gate_proj.weight", "model.norm.weight"));
  const TensorView second = renamed->find(layer + "1.gate_proj.weight");
  EXPECT_EQ(second.shape, (Shape{3, 4}));
  EXPECT_EQ(values_of(second), part_of(gate, 1, 0, 3));
  EXPECT_EQ(renamed->find("model.norm.weight").shape, (Shape{4}));
  EXPECT_TRUE(renamed->find(layer + "gate_proj.weight").empty());
  EXPECT_TRUE(renamed->find(layer + "2.gate_proj.weight").empty());
  EXPECT_TRUE(renamed->has_paired_qk_rows());
  EXPECT_EQ(renamed->describe(), "memory");
}

TEST(RenamedWeightsTest, TheMergedTensorHoldsTheGateAboveTheOther) {
  const std::string layer = "model.layers.0.mlp.experts.";
  auto source = std::make_unique<MemoryWeights>(
      std::map<std::string, Shape>{{layer + "gate_up_proj", {3, 4, 5}}});
  const TensorView merged = source->find(layer + "gate_up_proj");
  const auto renamed = with_published_names(std::move(source));
  EXPECT_EQ(renamed->names().size(), 6U);
  for (std::int64_t e = 0; e < 3; ++e) {
    const std::string expert = layer + std::to_string(e);
    EXPECT_EQ(values_of(renamed->find(expert + ".gate_proj.weight")), part_of(merged, e, 0, 2));
    EXPECT_EQ(values_of(renamed->find(expert + ".up_proj.weight")), part_of(merged, e, 2, 4));
  }
}

TEST(RenamedWeightsTest, OfAModelThatSeesTheTextPartIsLeft) {
  for (const auto& [prefix, head] :
       {std::pair{"language_model.model.", "language_model.lm_head.weight"},
        std::pair{"model.language_model.", "lm_head.weight"}}) {
    const auto renamed = with_published_names(std::make_unique<MemoryWeights>(
        std::map<std::string, Shape>{{std::string(prefix) + "norm.weight", {4}},
                                     {std::string(prefix) + "layers.0.mlp.up_proj.weight", {2, 4}},
                                     {head, {8, 4}},
                                     {"vision_tower.patch_conv.weight", {2, 2}},
                                     {"model.vision_tower.ln_pre.weight", {2}},
                                     {"multi_modal_projector.linear_1.weight", {2, 2}}}));
    EXPECT_THAT(renamed->names(), ElementsAre("lm_head.weight", "model.layers.0.mlp.up_proj.weight",
                                              "model.norm.weight"));
    EXPECT_EQ(renamed->find("lm_head.weight").shape, (Shape{8, 4}));
  }
}

TEST(RenamedWeightsTest, AStackOfAnotherRankIsNamed) {
  try {
    with_published_names(std::make_unique<MemoryWeights>(
        std::map<std::string, Shape>{{"model.layers.0.mlp.experts.up_proj.weight", {3, 4}}}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("memory: tensor model.layers.0.mlp.experts.up_proj.weight is "
                                    "[3, 4], expected [experts, rows, columns]"));
  }
}

}  // namespace
}  // namespace minisgl::models
