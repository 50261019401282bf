// Cases of model files that other engines got wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "testing/checkpoint.h"
#include "testing/golden.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing_util::SafetensorsWriter;
using testing_util::ScheduledRun;

class ModelCasesTest : public testing::Test {
 protected:
  ~ModelCasesTest() override { fs::remove_all(folder_); }

  /// A copy of a tiny model with f32 weights; `config` and `weights` are changed on the way.
  void make(const std::string& name, const std::function<void(json&)>& config,
            const std::function<void(SafetensorsWriter&)>& more = {},
            const std::string& left_out = "") const {
    testing_util::copy_without_weights(testing_util::tiny_model(name), folder_);
    json root = testing_util::read_tiny_config(folder_);
    config(root);
    std::ofstream(folder_ / "config.json") << root;
    SafetensorsWriter out;
    const SafetensorsFolder source(testing_util::tiny_model(name));
    for (const auto& [tensor_name, tensor] : source.tensors())
      if (tensor_name != left_out)
        out.tensor(tensor_name, "F32", testing_util::shape_of(tensor),
                   testing_util::stored_bytes(testing_util::values_of(tensor), DType::kF32));
    if (more) more(out);
    out.write(folder_ / "model.safetensors");
  }
  std::string error() const {
    try {
      load_model(folder_, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  static std::vector<std::uint64_t> logits_of(const fs::path& folder) {
    ScheduledRun run(folder, {});
    run.submit({3, 1, 4, 1, 5, 9, 2, 6}, {.max_tokens = 4, .ignore_eos = true});
    run.finish();
    return run.outcomes()[0].logits_hash;
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_model_cases_test_" + std::to_string(::getpid()));
};

TEST_F(ModelCasesTest, Mod4ATiedModelUsesItsEmbeddingAndIgnoresAHeadThatIsCarriedAlong) {
  const std::vector<std::uint64_t> expected = logits_of(testing_util::tiny_model("llama-tied"));
  make(
      "llama-tied", [](json&) {},
      [](SafetensorsWriter& out) {
        const SafetensorsFolder source(testing_util::tiny_model("llama-tied"));
        const TensorView embedding = source.tensors().at("model.embed_tokens.weight");
        const std::vector<float> other(static_cast<std::size_t>(embedding.numel()), 0.5F);
        out.tensor("lm_head.weight", "F32", testing_util::shape_of(embedding),
                   testing_util::stored_bytes(other, DType::kF32));
      });
  EXPECT_EQ(logits_of(folder_), expected);
}

TEST_F(ModelCasesTest, Mod4AnUntiedModelWithoutAHeadIsRefusedByName) {
  make("llama", [](json&) {}, {}, "lm_head.weight");
  EXPECT_THAT(error(), HasSubstr("1 tensor is missing: lm_head.weight ["));
  make("llama-tied", [](json& config) { config.erase("tie_word_embeddings"); });
  EXPECT_THAT(error(), HasSubstr("1 tensor is missing: lm_head.weight [")) << "not tied by default";
}

TEST_F(ModelCasesTest, Mod2HeadDimIsItsOwnNumber) {
  // hidden 64 and 4 heads of 64; the golden test compares its logits.
  make("mistral", [](json& config) { EXPECT_EQ(config["head_dim"], 64); });
  EXPECT_EQ(error(), "no error");
  for (const bool null : {false, true}) {
    make("mistral", [null](json& config) {
      if (null) {
        config["head_dim"] = nullptr;
      } else {
        config.erase("head_dim");
      }
    });
    EXPECT_THAT(error(), HasSubstr("self_attn.q_proj.weight is [256, 64], expected [64, 64]"));
  }
  // Where it is hidden / heads anyway, it may be left out.
  const std::vector<std::uint64_t> expected = logits_of(testing_util::tiny_model("llama-tied"));
  make("llama-tied", [](json& config) { config.erase("head_dim"); });
  EXPECT_EQ(logits_of(folder_), expected);
}

}  // namespace
}  // namespace minisgl
