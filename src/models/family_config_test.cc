#include "models/family_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/config_for_test.h"

namespace minisgl::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FamilyConfigTest : public ConfigTest {
 protected:
  /// A tiny model's configuration with changes; null removes a key.
  json changed(const std::string& name, const json& changes) const {
    json config = json::parse(std::ifstream(tiny(name) / "config.json"));
    config.merge_patch(changes);
    return config;
  }
  ModelConfig read_changed(const std::string& name, const json& changes = json::object()) const {
    write("config.json", changed(name, changes).dump());
    return read();
  }
  std::string error_of_changed(const std::string& name, const json& changes) const {
    return message_of([&] { read_changed(name, changes); });
  }
};

constexpr LayerRope kMain = LayerRope::kMain;
constexpr LayerRope kLocal = LayerRope::kLocal;
constexpr LayerRope kNone = LayerRope::kNone;

TEST_F(FamilyConfigTest, BothSpellingsOfTransformersGiveTheSameModel) {
  for (const char* name : {"smollm3", "gemma2", "gemma3", "phi3", "granite", "olmo2"}) {
    ModelConfig v5 = read_huggingface_config(tiny(name));
    fs::copy_file(tiny(name) / "config.v4.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
    ModelConfig v4 = read();
    v4.name = v5.name;
    // The end token of generation_config.json is that of config.json.
    EXPECT_EQ(v4, v5) << name;
  }
}

TEST_F(FamilyConfigTest, SmolLm3HasLayersWithoutRope) {
  EXPECT_THAT(read_changed("smollm3").layer_rope, ElementsAre(kMain, kMain, kMain, kNone, kMain));
  EXPECT_THAT(read_changed("smollm3", {{"no_rope_layers", {1, 0, 1, true, false}}}).layer_rope,
              ElementsAre(kMain, kNone, kMain, kMain, kNone));
  EXPECT_THAT(read_changed("smollm3", {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 2}})
                  .layer_rope,
              ElementsAre(kMain, kNone, kMain, kNone, kMain));
  EXPECT_TRUE(read_changed("smollm3", {{"tie_word_embeddings", nullptr}}).tie_word_embeddings);
  EXPECT_THAT(error_of_changed("smollm3", {{"no_rope_layers", {1, 0}}}),
              HasSubstr("no_rope_layers is [1,0], expected a list of 5 layers"));
  EXPECT_THAT(error_of_changed("smollm3", {{"no_rope_layers", {1, 0, 2, 1, 1}}}),
              HasSubstr("no_rope_layers has 2, expected 0 or 1"));
  EXPECT_THAT(error_of_changed("smollm3", {{"use_sliding_window", true}, {"layer_types", nullptr}}),
              HasSubstr("use_sliding_window is true, which needs layer_types"));
}

TEST_F(FamilyConfigTest, Gemma3HasTwoRopesAndWindowsInAllButEverySixthLayer) {
  const ModelConfig c = read_changed("gemma3");
  EXPECT_EQ(c.rope, (RopeConfig{.theta = 1e5, .kind = RopeKind::kLinear, .factor = 8.0}));
  EXPECT_EQ(c.local_rope, RopeConfig{.theta = 1000.0});
  EXPECT_THAT(c.layer_rope, ElementsAre(kLocal, kLocal, kLocal, kLocal, kLocal, kMain));
  EXPECT_THAT(c.layer_windows, ElementsAre(16, 16, 16, 16, 16, 0));
  EXPECT_EQ(c.norms, NormPlacement::kBoth);
  EXPECT_EQ(c.norm_offset, 1.0);
  EXPECT_EQ(c.activation, Activation::kGeluTanh);
  EXPECT_EQ(c.embedding_scale, std::sqrt(48.0));
  EXPECT_EQ(c.attention_scale, 1.0 / std::sqrt(12.0));
  EXPECT_EQ(c.logit_softcap, 0.0);
  EXPECT_EQ(read_changed("gemma3", {{"final_logit_softcapping", 30}}).logit_softcap, 30.0);

  const ModelConfig wide = read_changed("gemma3", {{"sliding_window", 512}});
  EXPECT_THAT(wide.layer_windows, IsEmpty()) << "as long as the context";
  EXPECT_EQ(wide.layer_rope, c.layer_rope) << "layers keep their ropes all the same";

  const ModelConfig half =
      read_changed("gemma3", {{"layer_types", nullptr}, {"sliding_window_pattern", 2}});
  EXPECT_THAT(half.layer_rope, ElementsAre(kLocal, kMain, kLocal, kMain, kLocal, kMain));

  EXPECT_THAT(error_of_changed("gemma3", {{"hidden_activation", "silu"}}),
              HasSubstr("hidden_activation 'silu' is not supported; supported is gelu_pytorch"));
  EXPECT_THAT(error_of_changed("gemma3", {{"attn_logit_softcapping", 50.0}}),
              HasSubstr("attn_logit_softcapping is not supported for this architecture"));
  EXPECT_THAT(error_of_changed("gemma3", {{"use_bidirectional_attention", true}}),
              HasSubstr("use_bidirectional_attention is true, which is not supported"));
  EXPECT_THAT(error_of_changed("gemma3", {{"query_pre_attn_scalar", -1}}),
              HasSubstr("query_pre_attn_scalar is -1, expected a positive number"));
  EXPECT_THAT(error_of_changed("gemma3",
                               {{"rope_parameters", {{"full_attention", {{"rope_type", "ntk"}}}}}}),
              HasSubstr("full_attention: rope_parameters: rope_type 'ntk' is not supported"));
}

// Published files of models with images leave out what transformers' Gemma3TextConfig says.
TEST_F(FamilyConfigTest, TheTextPartOfAModelWithImagesIsReadWithItsDefaults) {
  write("config.json", R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "eos_token_id": [1, 106], "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                    "sliding_window": 1024}})");
  const ModelConfig c = read();
  EXPECT_EQ(c.hidden_size, 2560);
  EXPECT_EQ(c.num_heads, 8);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.max_position_embeddings, 131072);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(1, 106));
  EXPECT_EQ(c.rope, (RopeConfig{.theta = 1e6, .kind = RopeKind::kLinear, .factor = 8.0}));
  EXPECT_EQ(c.local_rope, RopeConfig{.theta = 1e4});
  EXPECT_EQ(c.layer_windows[4], 1024);
  EXPECT_EQ(c.layer_windows[5], 0);
  write("config.json", R"({"architectures": ["Gemma3ForConditionalGeneration"]})");
  EXPECT_THAT(message_of([&] { read(); }), HasSubstr("text_config is missing, expected an object"));
}

TEST_F(FamilyConfigTest, Gemma2HasSoftCapsAndWindowsInEveryOtherLayer) {
  const ModelConfig c = read_changed("gemma2");
  EXPECT_EQ(c.attention_softcap, 1.5);
  EXPECT_EQ(c.logit_softcap, 2.0);
  EXPECT_THAT(c.layer_windows, ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(c.layer_rope, IsEmpty());
  const ModelConfig defaults = read_changed(
      "gemma2", {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  EXPECT_EQ(defaults.attention_softcap, 50.0);
  EXPECT_EQ(defaults.logit_softcap, 30.0);
  json uncapped = changed("gemma2", json::object());
  uncapped["attn_logit_softcapping"] = nullptr;
  write("config.json", uncapped.dump());
  EXPECT_EQ(read().attention_softcap, 0.0) << "null is none, absent is the default";
}

TEST_F(FamilyConfigTest, Phi3sLongRopeHoldsUpToTheOriginalContextUnlessMoreIsAskedFor) {
  const ModelConfig c = read_changed("phi3");
  EXPECT_EQ(c.max_position_embeddings, 160);
  EXPECT_EQ(c.longest_context(), 640);
  EXPECT_EQ(c.rope.kind, RopeKind::kLongRope);
  EXPECT_EQ(c.rope.rotated_dims, 18);
  EXPECT_EQ(c.rope.divisors.size(), 9U);
  EXPECT_EQ(c.rope.long_divisors.back(), 16.0F);
  EXPECT_DOUBLE_EQ(c.rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(160.0)));
  json rope = changed("phi3", json::object())["rope_parameters"];
  rope["attention_factor"] = 1.19;
  rope["rope_type"] = "su";
  EXPECT_EQ(read_changed("phi3", {{"rope_parameters", rope}}).rope.attention_factor, 1.19);

  const ModelConfig plain = read_changed("phi3", {{"rope_parameters", nullptr}});
  EXPECT_EQ(plain.max_position_embeddings, 640);
  EXPECT_EQ(plain.rope, RopeConfig{});
  EXPECT_EQ(
      read_changed("phi3", {{"sliding_window", 100}, {"rope_parameters", nullptr}}).layer_windows,
      std::vector<std::int32_t>(3, 100));

  const auto error_of_rope = [&](const char* key, const json& value) {
    json changed_rope = changed("phi3", json::object())["rope_parameters"];
    changed_rope[key] = value;
    return error_of_changed("phi3", {{"rope_parameters", changed_rope}});
  };
  EXPECT_THAT(error_of_rope("short_factor", {1, 2}),
              HasSubstr("rope_parameters: short_factor is [1,2], expected 9 positive numbers"));
  EXPECT_THAT(error_of_rope("long_factor", nullptr), HasSubstr("long_factor is missing"));
  EXPECT_THAT(error_of_rope("partial_rotary_factor", 0.7),
              testing::AllOf(HasSubstr("short_factor is ["), HasSubstr("expected 8 positive")));
  EXPECT_THAT(error_of_rope("partial_rotary_factor", 0.05),
              HasSubstr("partial_rotary_factor is 0.05, expected a part of head_dim 24 that is"));
  EXPECT_THAT(error_of_rope("rope_type", "yarn"),
              HasSubstr("rope_type of Phi3ForCausalLM must be default or longrope"));
}

TEST_F(FamilyConfigTest, GraniteHasFourMultipliers) {
  const ModelConfig c = read_changed("granite");
  EXPECT_EQ(c.embedding_scale, 2.5);
  EXPECT_EQ(c.residual_scale, 0.7);
  EXPECT_EQ(c.attention_scale, 0.4);
  EXPECT_EQ(c.logit_scale, 2.0);
  EXPECT_EQ(read_changed("granite", {{"attention_multiplier", nullptr}}).attention_scale, 1.0);
  EXPECT_THAT(error_of_changed("granite", {{"residual_multiplier", 0}}),
              HasSubstr("residual_multiplier is 0, expected a positive number"));
  EXPECT_THAT(error_of_changed("granite", {{"attention_bias", true}}),
              HasSubstr("attention_bias is true, which is not supported"));
}

TEST_F(FamilyConfigTest, Olmo2NormalisesAfterAttentionAndMlp) {
  const ModelConfig c = read_changed("olmo2", {{"rms_norm_eps", nullptr}});
  EXPECT_EQ(c.norms, NormPlacement::kAfter);
  EXPECT_TRUE(c.projection_qk_norm);
  EXPECT_FALSE(c.qk_norm);
  EXPECT_EQ(c.norm_offset, 0.0);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
}

TEST_F(FamilyConfigTest, KeysOfOtherFamiliesAreRefusedWhereTheyWouldBeIgnored) {
  EXPECT_THAT(error_of({{"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor is not supported unless it is 1 for Llama"));
  EXPECT_THAT(error_of({{"rope_scaling",
                         {{"rope_type", "longrope"},
                          {"short_factor", std::vector<int>(8, 1)},
                          {"long_factor", std::vector<int>(8, 2)},
                          {"original_max_position_embeddings", 64}}}}),
              HasSubstr("rope_type 'longrope' is not supported for LlamaForCausalLM"));
  EXPECT_THAT(error_of({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
              HasSubstr("rope_parameters of each kind of layer are not supported for Llama"));
}

}  // namespace
}  // namespace minisgl::models
