#include "models/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "kernels/ref/dequantize.h"
#include "minisgl/error.h"
#include "models/config.h"
#include "testing/tiny_gguf.h"
#include "testing/tiny_model.h"

namespace minisgl::models {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::tiny_model;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  kernels::dequantize_row(tensor.dtype, tensor.data, tensor.numel(), values.data());
  return values;
}

class WeightSourceTest : public testing::Test {
 protected:
  WeightSourceTest() { fs::create_directories(folder_); }
  ~WeightSourceTest() override { fs::remove_all(folder_); }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_weight_source_test_" + std::to_string(::getpid()));
};

TEST(CanonicalNameTest, MapsEveryNameOfItsArchitectures) {
  EXPECT_EQ(canonical_name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(canonical_name("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(canonical_name("output.weight"), "lm_head.weight");
  EXPECT_EQ(canonical_name("blk.0.attn_norm.weight"), "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(canonical_name("blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(canonical_name("blk.3.attn_k_norm.weight"), "model.layers.3.self_attn.k_norm.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_down.weight"), "model.layers.3.mlp.down_proj.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_gate_inp.weight"), "model.layers.3.mlp.gate.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_up_exps.weight"),
            "model.layers.3.mlp.experts.up_proj.weight");
  for (const char* unknown : {"rope_freqs.weight", "blk.3.ffn_norm_exps.weight", "blk.3", "blk.",
                              "blk.3.weight", "x", ""})
    EXPECT_EQ(canonical_name(unknown), unknown);
}

// Oracle: write_tiny_gguf() names and reorders as llama.cpp's converter does.
TEST_F(WeightSourceTest, TheSameModelInBothFormatsHasTheSameWeightsUnderTheSameNames) {
  const std::pair<const char*, const char*> kModels[] = {{"llama", "llama"},
                                                         {"llama-sharded", "llama"},
                                                         {"llama-tied", "llama"},
                                                         {"qwen2", "qwen2"},
                                                         {"qwen3", "qwen3"}};
  for (const auto& [name, architecture] : kModels) {
    const fs::path path = folder_ / "m.gguf";
    testing_util::write_tiny_gguf(tiny_model(name), architecture, path);
    const auto folder = open_weights(tiny_model(name));
    const auto gguf = open_weights(path);
    EXPECT_EQ(folder->describe(), tiny_model(name).string());
    EXPECT_EQ(gguf->describe(), path.string());
    EXPECT_FALSE(folder->has_paired_qk_rows());
    EXPECT_EQ(gguf->has_paired_qk_rows(), std::string(architecture) == "llama");

    const ModelConfig c = read_huggingface_config(tiny_model(name));
    std::vector<std::string> names = gguf->names();
    std::erase(names, "rope_freqs.weight");
    EXPECT_EQ(names, folder->names()) << name;
    for (const std::string& tensor_name : names) {
      const TensorView expected = folder->find(tensor_name);
      const TensorView actual = gguf->find(tensor_name);
      ASSERT_EQ(actual.shape, expected.shape) << tensor_name;
      const std::vector<float> want = values_of(expected);
      std::vector<float> got = values_of(actual);
      const bool is_qk = tensor_name.find("q_proj.w") != std::string::npos ||
                         tensor_name.find("k_proj.w") != std::string::npos;
      if (gguf->has_paired_qk_rows() && is_qk) {
        const std::vector<float> stored = got;
        const std::int64_t cols = actual.dim(1), half = c.head_dim / 2;
        for (std::int64_t row = 0; row < actual.dim(0); ++row) {  // row = head, half, d
          const std::int64_t head = row / c.head_dim, d = row % c.head_dim;
          const std::int64_t from = head * c.head_dim + d % half * 2 + d / half;
          std::copy_n(stored.begin() + from * cols, cols, got.begin() + row * cols);
        }
        EXPECT_NE(stored, want) << tensor_name << ": not reordered at all";
      }
      EXPECT_EQ(got, want) << name << " " << tensor_name;
      gguf->drop(actual);
      folder->drop(expected);
      EXPECT_EQ(values_of(expected), want);
    }
  }
}

TEST_F(WeightSourceTest, ATensorThatIsNotThereIsAnEmptyView) {
  const auto source = open_weights(tiny_model("llama-tied"));
  EXPECT_TRUE(source->find("lm_head.weight").empty());
  EXPECT_TRUE(source->find("model.layers.99.mlp.up_proj.weight").empty());
  EXPECT_FALSE(source->find("model.norm.weight").empty());
}

TEST_F(WeightSourceTest, ATypeThatIsNotSupportedIsNamedWhenTheTensorIsWanted) {
  const std::string header = R"({"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})";
  const std::uint64_t length = header.size();
  std::ofstream(folder_ / "model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << header << "xx";
  const auto source = open_weights(folder_);
  EXPECT_THAT(source->names(), testing::ElementsAre("w"));
  EXPECT_THAT(message_of([&] { source->find("w"); }),
              HasSubstr("model.safetensors: type 'F8_E4M3' of tensor 'w' is not supported"));
}

TEST_F(WeightSourceTest, UnexpectedTensorsAreListedAndKnownExtrasAreNot) {
  testing_util::GgufWriter out;
  out.text("general.architecture", "llama");
  for (const char* name :
       {"output_norm.weight", "output.weight", "rope_freqs.weight", "blk.0.attn_rot.weight",
        "blk.0.attn_q.bias", "model.layers.0.self_attn.rotary_emb.inv_freq"})
    out.tensor(name, {1}, 0, "1234");
  out.write(folder_ / "x.gguf");
  const auto source = open_weights(folder_ / "x.gguf");
  const Shape one{1};
  EXPECT_THAT(message_of([&] { check_weights(*source, {}, {{"model.norm.weight", one}}); }),
              HasSubstr("x.gguf: 2 tensors that the model's architecture does not have: "
                        "'blk.0.attn_rot.weight', 'model.layers.0.self_attn.q_proj.bias'"));
  EXPECT_EQ(message_of([&] {
              check_weights(*source, {},
                            {{"model.norm.weight", one},
                             {"blk.0.attn_rot.weight", one},
                             {"model.layers.0.self_attn.q_proj.bias", one}});
            }),
            "no error");
}

TEST_F(WeightSourceTest, ManyUnexpectedTensorsAreCounted) {
  testing_util::GgufWriter out;
  out.text("general.architecture", "qwen2");
  for (int i = 0; i < 20; ++i)
    out.tensor(std::string("t").append(std::to_string(i)), {1}, 0, "1234");
  out.write(folder_ / "x.gguf");
  EXPECT_THAT(message_of([&] { check_weights(*open_weights(folder_ / "x.gguf"), {}, {}); }),
              HasSubstr("20 tensors that the model's architecture does not have: 't0', 't1', "));
  EXPECT_THAT(message_of([&] { check_weights(*open_weights(folder_ / "x.gguf"), {}, {}); }),
              HasSubstr(" and 12 more"));
}

TEST_F(WeightSourceTest, SaysWhatToGiveInsteadOfASafetensorsFile) {
  EXPECT_THAT(message_of([] { open_weights(tiny_model("llama") / "model.safetensors"); }),
              HasSubstr("give the folder that this file is in"));
  EXPECT_THAT(message_of([] { open_weights(tiny_model("llama") / "config.json"); }),
              HasSubstr("not a GGUF file: it is a JSON file"));
  EXPECT_THAT(message_of([] { open_weights("/nonexistent"); }), HasSubstr("No such file"));
}

}  // namespace
}  // namespace minisgl::models
