#include "models/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/config_for_test.h"
#include "models/rope.h"
#include "testing/tiny_gguf.h"

namespace minisgl::models {
namespace {

using testing::HasSubstr;

TEST_F(ConfigTest, AGgufFileSaysTheSameAsTheFolderThatItWasMadeOf) {
  const std::pair<const char*, const char*> kModels[] = {
      {"llama", "llama"}, {"llama-tied", "llama"}, {"llama-f32", "llama"},    {"mistral", "llama"},
      {"qwen2", "qwen2"}, {"qwen3", "qwen3"},      {"llama-sharded", "llama"}};
  for (const auto& [name, architecture] : kModels) {
    const fs::path path = folder_ / "m.gguf";
    testing_util::write_tiny_gguf(tiny(name), architecture, path);
    ModelConfig expected = read_huggingface_config(tiny(name));
    ModelConfig actual = read_gguf_config(GgufFile(path));
    const auto frequencies = rope_inverse_frequencies(expected.rope, expected.head_dim);
    const auto gguf_frequencies = rope_inverse_frequencies(actual.rope, actual.head_dim);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      EXPECT_NEAR(gguf_frequencies[i], frequencies[i], frequencies[i] * 2e-7) << name << i;
    EXPECT_EQ(actual.rope.divisors.empty(), expected.rope.kind == RopeKind::kDefault);
    EXPECT_NEAR(actual.rms_norm_eps, expected.rms_norm_eps, 1e-12);
    actual.rope = expected.rope;
    actual.rms_norm_eps = expected.rms_norm_eps;
    expected.sampling = {};  // of generation_config.json
    if (std::string(name) == "mistral") expected.architecture = "LlamaForCausalLM";
    EXPECT_EQ(actual, expected) << name;
  }
}

class GgufConfigTest : public ConfigTest {
 protected:
  /// A small llama; `change` may add keys to it.
  std::string gguf_error(const std::function<void(testing_util::GgufWriter&)>& change,
                         const std::string& without = "", std::uint64_t hidden = 8) const {
    testing_util::GgufWriter out;
    out.text("general.architecture", "llama");
    const std::pair<const char*, std::uint32_t> kSizes[] = {
        {"block_count", 1},          {"embedding_length", 8},        {"feed_forward_length", 8},
        {"attention.head_count", 2}, {"attention.head_count_kv", 1}, {"context_length", 64}};
    for (const auto& [key, value] : kSizes)
      if (key != without) out.u32(std::string("llama.") + key, value);
    if (without != "attention.layer_norm_rms_epsilon")
      out.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    out.tensor("token_embd.weight", {hidden, 4}, 0, std::string(hidden * 4 * 4, '\0'));
    change(out);
    const fs::path path = folder_ / "x.gguf";
    out.write(path);
    return message_of([&] { read_gguf_config(GgufFile(path)); });
  }
};

TEST_F(GgufConfigTest, SaysWhatIsMissingOrNotSupported) {
  using Writer = testing_util::GgufWriter;
  const auto nothing = [](Writer&) {};
  EXPECT_EQ(gguf_error(nothing), "no error");
  EXPECT_THAT(gguf_error(nothing, "block_count"),
              HasSubstr("x.gguf: metadata key 'llama.block_count' is missing"));
  EXPECT_THAT(gguf_error(nothing, "attention.layer_norm_rms_epsilon"), HasSubstr("is missing"));
  EXPECT_THAT(gguf_error(nothing, "", 16),
              HasSubstr("token_embd.weight is [4, 16], expected [vocabulary, 8]"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("split.count", 3); }),
              HasSubstr("is one of 3 parts; split files are not supported"));
  EXPECT_THAT(
      gguf_error([](Writer& w) { w.u32("llama.expert_count", 8); }),
      HasSubstr("llama.expert_count is 8; this architecture is not supported with experts"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("llama.attention.value_length", 8); }),
              HasSubstr("llama.attention.value_length differs from the key length 4"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("llama.rope.dimension_count", 6); }),
              HasSubstr("llama.rope.dimension_count is 6, expected an even part of the head of 4"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.text("llama.rope.scaling.type", "alibi"); }),
              HasSubstr("llama.rope.scaling.type 'alibi' is not supported; supported are none"));
  EXPECT_THAT(gguf_error([](Writer& w) {
                w.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.attn_factor", -1);
              }),
              HasSubstr("attn_factor is -1.000000, expected a positive number, or 0 for none"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.f32("llama.rope.freq_base", -1.0F); }),
              HasSubstr("expected a positive number"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.tensor("rope_freqs.weight", {1}, 0, "1234"); }),
              HasSubstr("rope_freqs.weight is f32 [1], expected f32 [2]"));
}

TEST_F(GgufConfigTest, LinearScalingHasANewAndAnOldKey) {
  for (const bool is_new : {true, false}) {
    testing_util::GgufWriter out;
    EXPECT_EQ(gguf_error([&](testing_util::GgufWriter& w) {
                if (is_new) {
                  w.text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4);
                } else {
                  w.f32("llama.rope.scale_linear", 4);
                }
              }),
              "no error");
    const ModelConfig c = read_gguf_config(GgufFile(folder_ / "x.gguf"));
    EXPECT_EQ(c.rope, (RopeConfig{.kind = RopeKind::kLinear, .factor = 4.0}));
  }
}

// Oracle: llama.cpp multiplies cos and sin by attn_factor * (1 + 0.1 ln factor), and divides by
// that of the log multiplier.
TEST_F(GgufConfigTest, YarnIsReadFromItsKeys) {
  const auto rope_with = [this](const std::function<void(testing_util::GgufWriter&)>& change) {
    EXPECT_EQ(gguf_error([&](testing_util::GgufWriter& w) {
                w.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
                change(w);
              }),
              "no error");
    return read_gguf_config(GgufFile(folder_ / "x.gguf")).rope;
  };
  RopeConfig expected{.kind = RopeKind::kYarn, .factor = 4.0, .original_max_position = 64};
  expected.attention_factor = 0.1 * std::log(4.0) + 1.0;
  EXPECT_EQ(rope_with([](testing_util::GgufWriter&) {}), expected);
  const RopeConfig full = rope_with([](testing_util::GgufWriter& w) {
    w.u32("llama.rope.scaling.original_context_length", 16)
        .f32("llama.rope.scaling.attn_factor", 0.5F)
        .f32("llama.rope.scaling.yarn_log_multiplier", 0.5F)
        .f32("llama.rope.scaling.yarn_beta_fast", 16)
        .f32("llama.rope.scaling.yarn_beta_slow", 2);
  });
  EXPECT_EQ(full.original_max_position, 16);
  EXPECT_EQ(full.beta_fast, 16);
  EXPECT_EQ(full.beta_slow, 2);
  EXPECT_NEAR(full.attention_factor,
              0.5 * (0.1 * std::log(4.0) + 1.0) / (0.05 * std::log(4.0) + 1.0), 1e-12);
}

TEST_F(GgufConfigTest, AWindowIsThatOfAllLayers) {
  for (const std::uint32_t window : {32U, 64U}) {
    EXPECT_EQ(gguf_error([&](testing_util::GgufWriter& w) {
                w.u32("llama.attention.sliding_window", window);
              }),
              "no error");
    const ModelConfig c = read_gguf_config(GgufFile(folder_ / "x.gguf"));
    EXPECT_EQ(c.layer_windows,
              window == 32 ? std::vector<std::int32_t>{32} : std::vector<std::int32_t>{});
  }
}

TEST_F(GgufConfigTest, UnknownArchitecturesAreNamed) {
  testing_util::GgufWriter().text("general.architecture", "mamba").write(folder_ / "x.gguf");
  EXPECT_THAT(message_of([this] { read_gguf_config(GgufFile(folder_ / "x.gguf")); }),
              HasSubstr("x.gguf: architecture 'mamba' is not supported; supported are llama, "
                        "qwen2, qwen3, qwen3moe, smollm3, gemma2, gemma3, phi3, granite, olmo2"));
}

}  // namespace
}  // namespace minisgl::models
