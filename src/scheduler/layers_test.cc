// Which layer first gives something else than transformers' does. Each model is cut after each
// layer, and after each layer's attention, so that its logits show what the stream of residuals is
// there.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "models/model.h"
#include "testing/golden.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_model.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing_util::ScheduledRun;

using Vector = std::vector<double>;

/// Row `row` of a tensor (or all of a vector).
Vector row_of(const TensorView& tensor, std::int64_t row = 0) {
  const std::int64_t width = tensor.dim(-1);
  Vector values;
  visit_float_dtype(tensor.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < width; ++i)
      values.push_back(to_f32(tensor.as<T>()[row * width + i]));
  });
  return values;
}

class LayersTest : public testing::TestWithParam<std::string> {
 protected:
  LayersTest()
      : folder_(testing_util::tiny_model(GetParam())),
        config_(read_model_config(folder_)),
        weights_(folder_),
        golden_(SafetensorsFile(folder_ / "golden.safetensors")) {
    fs::create_directories(cut_);
    testing_util::read_json(folder_ / "golden.json")["prompts"][1]["ids"].get_to(prompt_);
  }
  ~LayersTest() override { fs::remove_all(cut_); }

  const TensorView& weight(const std::string& name) const { return weights_.tensors().at(name); }
  Vector golden(const std::string& name) const {
    return row_of(golden_.tensors().at("len7." + name), /*row=*/6);
  }

  Vector norm(const Vector& x, const std::string& name) const {
    const Vector w = row_of(weight(name + ".weight"));
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale =
        1.0 / std::sqrt(squares / static_cast<double>(x.size()) + config_.rms_norm_eps);
    Vector y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back(x[i] * scale * (w[i] + config_.norm_offset));
    return y;
  }

  /// What a model whose last layer leaves `hidden` says.
  Vector logits_of(const Vector& hidden) const {
    const Vector x = norm(hidden, "model.norm");
    const TensorView& head =
        weight(config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
    Vector logits;
    for (std::int64_t token = 0; token < config_.vocab_size; ++token) {
      const Vector w = row_of(head, token);
      double sum = 0;
      for (std::size_t i = 0; i < w.size(); ++i) sum += w[i] * x[i];
      sum *= config_.logit_scale;
      const double cap = config_.logit_softcap;
      logits.push_back(cap > 0 ? cap * std::tanh(sum / cap) : sum);
    }
    return logits;
  }

  /// The logits of this engine for a model of the first layers; without the last one's MLP, or
  /// with.
  std::vector<float> logits_of_cut(std::int64_t num_layers, bool with_mlp) const {
    json config = testing_util::read_json(folder_ / "config.json");
    config["num_hidden_layers"] = num_layers;
    for (const char* key : {"layer_types", "no_rope_layers"})
      if (config.contains(key))
        config[key] = json(config[key].begin(), config[key].begin() + num_layers);
    std::ofstream(cut_ / "config.json") << config;
    const std::string last = "model.layers." + std::to_string(num_layers - 1) + ".";
    testing_util::write_safetensors(
        cut_ / "model.safetensors", folder_,
        {.keep = [&](const std::string& name) { return layer_number(name) < num_layers; },
         .zero =
             [&](const std::string& name) {
               return !with_mlp && name == last + "mlp.down_proj.weight";
             }});
    ScheduledRun run(cut_, {.keep_logits = 1});
    run.submit(prompt_, {.max_tokens = 1, .ignore_eos = true});
    run.finish();
    return run.outcomes()[0].logits.at(0);
  }

  /// "model.layers.3.mlp..." is of layer 3; -1 outside of layers.
  static std::int64_t layer_number(const std::string& name) {
    const std::string prefix = "model.layers.";
    return name.starts_with(prefix) ? std::stoll(name.substr(prefix.size())) : -1;
  }

  const fs::path folder_;
  const ModelConfig config_;
  const SafetensorsFolder weights_;
  const SafetensorsFile golden_;
  const fs::path cut_ =
      fs::temp_directory_path() / ("minisgl_layers_test_" + std::to_string(::getpid()));
  std::vector<TokenId> prompt_;
};

void expect_near(const std::vector<float>& actual, const Vector& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 2e-4) << what << " is the first to differ, logit " << i;
}

TEST_P(LayersTest, AttentionAndMlpOfEachLayerAddWhatTheyAddInTransformers) {
  Vector residual = golden("embed");
  for (double& value : residual) {
    const bool is_scaled = GetParam().starts_with("gemma");  // by the module itself
    if (!is_scaled) value *= config_.embedding_scale;
  }
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string layer = "layer" + std::to_string(i);
    Vector added = golden(layer + ".attn");
    if (config_.norms != NormPlacement::kBefore)
      added = norm(added, "model.layers." + std::to_string(i) + ".post_attention_layernorm");
    for (std::size_t d = 0; d < residual.size(); ++d)
      residual[d] += config_.residual_scale * added[d];
    expect_near(logits_of_cut(i + 1, /*with_mlp=*/false), logits_of(residual),
                "attention of " + layer);
    residual = golden(layer);
    expect_near(logits_of_cut(i + 1, /*with_mlp=*/true), logits_of(residual), "MLP of " + layer);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayersTest,
                         testing::Values("smollm3", "gemma2", "gemma3", "phi3", "granite", "olmo2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace minisgl
