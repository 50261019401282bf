#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/config_for_test.h"

namespace minisgl::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ConfigTest, BothSpellingsOfTransformersGiveTheSameModel) {
  for (const char* name : {"llama", "llama-f32", "llama-sharded", "llama-tied", "mistral", "qwen2",
                           "qwen3", "qwen3-yarn"}) {
    ModelConfig v5 = read_huggingface_config(tiny(name));
    fs::copy_file(tiny(name) / "config.v4.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
    ModelConfig v4 = read();
    EXPECT_EQ(v5.name, name);
    v4.name = v5.name;
    v4.sampling = v5.sampling;  // of generation_config.json, which is not copied
    EXPECT_EQ(v4, v5) << name;
  }
}

TEST_F(ConfigTest, ReadsWhatTheTinyModelsAre) {
  const ModelConfig llama = read_huggingface_config(tiny("llama"));
  EXPECT_EQ(llama.architecture, "LlamaForCausalLM");
  EXPECT_EQ(llama.num_layers, 3);
  EXPECT_EQ(llama.hidden_size, 128);
  EXPECT_EQ(llama.intermediate_size, 224);
  EXPECT_EQ(llama.num_heads, 4);
  EXPECT_EQ(llama.num_kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 32);
  EXPECT_EQ(llama.vocab_size, 640);
  EXPECT_EQ(llama.max_position_embeddings, 512);
  EXPECT_EQ(llama.rms_norm_eps, 1e-5);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_FALSE(llama.qkv_bias);
  EXPECT_FALSE(llama.qk_norm);
  EXPECT_EQ(llama.rope, (RopeConfig{.theta = 10000.0,
                                    .kind = RopeKind::kLlama3,
                                    .factor = 8.0,
                                    .low_freq_factor = 1.0,
                                    .high_freq_factor = 4.0,
                                    .original_max_position = 64}));
  EXPECT_THAT(llama.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(llama.bos_token_id, 1);
  EXPECT_EQ(llama.dtype, DType::kBF16);

  const ModelConfig qwen3 = read_huggingface_config(tiny("qwen3"));
  EXPECT_EQ(qwen3.head_dim, 128) << "its own number, not hidden_size / heads = 16";
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_TRUE(qwen3.tie_word_embeddings);
  EXPECT_EQ(qwen3.rope, RopeConfig{.theta = 1e6});
  EXPECT_THAT(qwen3.eos_token_ids, ElementsAre(600, 602));
  EXPECT_EQ(qwen3.bos_token_id, std::nullopt);
  EXPECT_TRUE(read_huggingface_config(tiny("qwen2")).qkv_bias);
  EXPECT_EQ(read_huggingface_config(tiny("llama-f32")).dtype, DType::kF32);
}

TEST_F(ConfigTest, HeadDimIsItsOwnNumberAndElseHiddenSizeOverHeads) {
  EXPECT_EQ(read({{"head_dim", 32}}).head_dim, 32);
  EXPECT_EQ(read(json::object()).head_dim, 16);
  EXPECT_EQ(read({{"head_dim", nullptr}}).head_dim, 16);
  EXPECT_THAT(error_of({{"num_attention_heads", 6}}),
              HasSubstr("hidden size 64 is not a multiple of 6 heads"));
  EXPECT_THAT(error_of({{"head_dim", 5}}), HasSubstr("head_dim 5 is odd"));
}

TEST_F(ConfigTest, AbsentKeysHaveTheDefaultsOfTransformers) {
  write_config(json::object(), {{"num_key_value_heads", nullptr}});
  const ModelConfig c = read();
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.rope, RopeConfig{.theta = 10000.0});
  EXPECT_TRUE(c.eos_token_ids.empty());
  EXPECT_EQ(c.dtype, DType::kF32);
  EXPECT_TRUE(read({{"tie_word_embeddings", true}}).tie_word_embeddings);
  EXPECT_EQ(read({{"torch_dtype", "torch.float16"}}).dtype, DType::kF16);
}

TEST_F(ConfigTest, EveryEndTokenOfBothFilesCounts) {
  write("generation_config.json", R"({"eos_token_id":[4,5]})");
  EXPECT_THAT(read({{"eos_token_id", {4, 3}}}).eos_token_ids, ElementsAre(3, 4, 5));
  EXPECT_THAT(read({{"eos_token_id", 9}}).eos_token_ids, ElementsAre(4, 5, 9));
  EXPECT_THAT(read({{"eos_token_id", nullptr}}).eos_token_ids, ElementsAre(4, 5));
  write("generation_config.json", R"({"eos_token_id":7})");
  EXPECT_THAT(read({{"eos_token_id", 9}}).eos_token_ids, ElementsAre(7, 9));
  fs::remove(folder_ / "generation_config.json");
  EXPECT_THAT(read({{"eos_token_id", {4, 3}}}).eos_token_ids, ElementsAre(3, 4));
  EXPECT_THAT(read({{"eos_token_id", {-1, 100, 99}}}).eos_token_ids, ElementsAre(99))
      << "-1 means none, 100 is not in the vocabulary";
  EXPECT_THAT(error_of({{"eos_token_id", "</s>"}}),
              HasSubstr("eos_token_id is \"</s>\", expected a token id or a list of them"));
}

TEST_F(ConfigTest, TheSamplingThatTheAuthorsAdviseIsRead) {
  EXPECT_EQ(read_huggingface_config(tiny("qwen3")).sampling,
            (SamplingDefaults{.temperature = 0.6, .top_k = 20, .top_p = 0.95}));
  EXPECT_EQ(read(json::object()).sampling, SamplingDefaults{});
  write("generation_config.json", R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,
                                      "min_p":null,"max_new_tokens":100})");
  EXPECT_EQ(read(json::object()).sampling,
            (SamplingDefaults{.temperature = 0.6, .top_k = 20, .top_p = 0.95}));
  const std::pair<const char*, const char*> kFaults[] = {
      {R"({"temperature":"hot"})", "temperature is \"hot\", expected a number from 0 to 2"},
      {R"({"temperature":2.5})", "temperature is 2.5, expected a number from 0 to 2"},
      {R"({"top_p":-0.1})", "top_p is -0.1, expected a number from 0 to 1"},
      {R"({"min_p":2})", "min_p is 2, expected a number from 0 to 1"},
      {R"({"top_k":1.5})", "top_k is 1.5, expected a whole number"}};
  for (const auto& [text, fault] : kFaults) {
    write("generation_config.json", text);
    EXPECT_THAT(message_of([&] { read(); }),
                HasSubstr(std::string("generation_config.json: ") + fault));
  }
  fs::remove(folder_ / "generation_config.json");
}

TEST_F(ConfigTest, ReadsAllSpellingsOfRope) {
  const json llama3 = {{"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const RopeConfig expected{.theta = 5e5,
                            .kind = RopeKind::kLlama3,
                            .factor = 32.0,
                            .low_freq_factor = 1.0,
                            .high_freq_factor = 4.0,
                            .original_max_position = 8192};
  json v4 = llama3;
  v4["rope_type"] = "llama3";
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_scaling", v4}}).rope, expected);
  json old = llama3;
  old["type"] = "llama3";
  EXPECT_EQ(read({{"rope_theta", 500000}, {"rope_scaling", old}}).rope, expected);
  json v5 = v4;
  v5["rope_theta"] = 5e5;
  EXPECT_EQ(read({{"rope_parameters", v5}}).rope, expected);
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_parameters", v4}}).rope, expected);
  EXPECT_EQ(read({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}).rope,
            (RopeConfig{.kind = RopeKind::kLinear, .factor = 2.0}));

  EXPECT_THAT(
      error_of({{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 2.0}}}}),
      HasSubstr("rope_scaling: rope_type 'proportional' is not supported; supported are default, "
                "linear, llama3, yarn, dynamic, longrope"));
  EXPECT_THAT(error_of({{"rope_scaling", {{"rope_type", "llama3"}}}}),
              HasSubstr("rope_scaling: factor is missing"));
  EXPECT_THAT(error_of({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}}),
              HasSubstr("factor is 0, expected a positive number"));
  v4["low_freq_factor"] = 4.0;
  EXPECT_THAT(error_of({{"rope_scaling", v4}}), HasSubstr("low_freq_factor is not below"));
  EXPECT_THAT(error_of({{"rope_scaling", 2}}), HasSubstr("expected an object"));
  EXPECT_THAT(error_of({{"rope_theta", "x"}}), HasSubstr("rope_theta is \"x\""));
}

TEST_F(ConfigTest, YarnHasTheDefaultsOfTransformers) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  RopeConfig expected{.kind = RopeKind::kYarn, .factor = 4.0, .original_max_position = 256};
  expected.attention_factor = 0.1 * std::log(4.0) + 1.0;
  EXPECT_EQ(read({{"rope_scaling", yarn}}).rope, expected) << "the original context is the model's";
  json change = yarn;
  change["original_max_position_embeddings"] = 64;
  change["beta_fast"] = nullptr;
  change["beta_slow"] = 0;
  expected.original_max_position = 64;
  EXPECT_EQ(read({{"rope_parameters", change}}).rope, expected);
  json old = change;
  old.erase("rope_type");
  old["type"] = "yarn";
  EXPECT_EQ(read({{"rope_scaling", old}}).rope, expected);
  change["factor"] = nullptr;
  EXPECT_EQ(read({{"rope_parameters", change}}).rope, expected) << "256 / 64";
  change["factor"] = 0.5;
  EXPECT_EQ(read({{"rope_parameters", change}}).rope.attention_factor, 1.0) << "never below 1";
}

TEST_F(ConfigTest, YarnsAttentionFactorIsGivenOrFollowsFromTheScales) {
  json yarn = {{"rope_type", "yarn"}, {"factor", 40.0}, {"mscale", 0.707}};
  const double logarithm = std::log(40.0);
  const auto factor = [&] { return read({{"rope_scaling", yarn}}).rope.attention_factor; };
  EXPECT_DOUBLE_EQ(factor(), 0.1 * logarithm + 1.0) << "one scale alone does not count";
  yarn["mscale_all_dim"] = 1.0;
  EXPECT_DOUBLE_EQ(factor(), (0.0707 * logarithm + 1.0) / (0.1 * logarithm + 1.0));
  yarn["mscale_all_dim"] = 0;
  EXPECT_DOUBLE_EQ(factor(), 0.1 * logarithm + 1.0);
  yarn["attention_factor"] = 1.25;
  EXPECT_DOUBLE_EQ(factor(), 1.25);
  yarn["truncate"] = false;
  yarn["beta_fast"] = 16;
  yarn["beta_slow"] = 2;
  const RopeConfig rope = read({{"rope_scaling", yarn}}).rope;
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(rope.beta_fast, 16);
  EXPECT_EQ(rope.beta_slow, 2);
  yarn["attention_factor"] = -1;
  EXPECT_THAT(error_of({{"rope_scaling", yarn}}),
              HasSubstr("attention_factor is -1, expected a positive number"));
}

TEST_F(ConfigTest, DynamicScalingMakesLongerContextsPossible) {
  const ModelConfig c = read({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.5}}}});
  EXPECT_EQ(c.rope,
            (RopeConfig{.kind = RopeKind::kDynamic, .factor = 2.5, .original_max_position = 256}));
  EXPECT_EQ(c.max_position_embeddings, 256);
  EXPECT_EQ(c.longest_context(), 640);
  EXPECT_EQ(read(json::object()).longest_context(), 256);
  EXPECT_THAT(error_of({{"rope_scaling", {{"type", "dynamic"}}}}), HasSubstr("factor is missing"));
  EXPECT_THAT(error_of({{"rope_scaling", {{"type", "dynamic"}, {"factor", 0.5}}}}),
              HasSubstr("factor is 0.5, expected at least 1"));
}

TEST_F(ConfigTest, MistralHasOneWindowInAllLayers) {
  const auto windows = [this](const json& change) {
    json all = change;
    all["architectures"] = {"MistralForCausalLM"};
    all["num_hidden_layers"] = 3;
    return read(all).layer_windows;
  };
  EXPECT_THAT(windows({{"sliding_window", nullptr}}), IsEmpty());
  EXPECT_THAT(windows({{"sliding_window", 64}}), ElementsAre(64, 64, 64));
  EXPECT_THAT(windows({{"sliding_window", 256}}), IsEmpty()) << "never shorter than the context";
  EXPECT_THAT(windows({{"max_position_embeddings", 8192}}), ElementsAre(4096, 4096, 4096))
      << "transformers' default";
  EXPECT_THAT(read({{"sliding_window", 64}}).layer_windows, IsEmpty()) << "Llama has none";
  EXPECT_THAT(error_of({{"architectures", {"MistralForCausalLM"}}, {"sliding_window", -1}}),
              HasSubstr("sliding_window is -1"));
}

TEST_F(ConfigTest, QwensWindowsAreOfSomeLayers) {
  json c = {{"architectures", {"Qwen2ForCausalLM"}},
            {"num_hidden_layers", 3},
            {"sliding_window", 64},
            {"use_sliding_window", false}};
  EXPECT_THAT(read(c).layer_windows, IsEmpty());
  c.erase("use_sliding_window");
  EXPECT_THAT(read(c).layer_windows, IsEmpty());
  c["use_sliding_window"] = true;
  EXPECT_THAT(read(c).layer_windows, IsEmpty()) << "the first 28 layers have none";
  c["max_window_layers"] = 1;
  EXPECT_THAT(read(c).layer_windows, ElementsAre(0, 64, 64));
  c["max_window_layers"] = 0;
  EXPECT_THAT(read(c).layer_windows, ElementsAre(64, 64, 64));
  c["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(read(c).layer_windows, ElementsAre(0, 64, 0));
  c["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_THAT(read(c).layer_windows, ElementsAre(0, 64, 0));
  c["use_sliding_window"] = false;
  EXPECT_THAT(error_of(c), HasSubstr("layer_types has \"sliding_attention\", but no"));
  c["layer_types"] = {"full_attention", "chunked_attention", "full_attention"};
  EXPECT_THAT(error_of(c), HasSubstr("layer_types has \"chunked_attention\"; supported are"));
  c["layer_types"] = {"full_attention"};
  EXPECT_THAT(error_of(c), HasSubstr("expected a list of 3 layers"));
  c.erase("layer_types");
  c["use_sliding_window"] = true;
  c["max_window_layers"] = -1;
  EXPECT_THAT(error_of(c), HasSubstr("max_window_layers is -1, expected a number of layers"));
}

TEST_F(ConfigTest, OfAModelThatSeesTheTextPartCounts) {
  json text = {{"hidden_size", 64},        {"intermediate_size", 96},
               {"num_hidden_layers", 2},   {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"vocab_size", 100},
               {"head_dim", 32},           {"max_position_embeddings", 256},
               {"rope_theta", 1e9},        {"sliding_window", nullptr},
               {"torch_dtype", nullptr}};
  json root = {{"architectures", {"Mistral3ForConditionalGeneration"}},
               {"text_config", text},
               {"vision_config", {{"hidden_size", 1024}, {"hidden_act", "gelu"}}},
               {"torch_dtype", "bfloat16"},
               {"eos_token_id", 7}};
  const auto read_root = [&] {
    write("config.json", root.dump());
    return read();
  };
  const ModelConfig c = read_root();
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.rope.theta, 1e9);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(7));
  EXPECT_THAT(c.layer_windows, IsEmpty());
  EXPECT_FALSE(c.tie_word_embeddings);
  root["text_config"]["eos_token_id"] = 9;
  root["text_config"]["sliding_window"] = 16;
  root["tie_word_embeddings"] = true;
  EXPECT_THAT(read_root().eos_token_ids, ElementsAre(9));
  EXPECT_THAT(read_root().layer_windows, ElementsAre(16, 16));
  EXPECT_TRUE(read_root().tie_word_embeddings);
  root["text_config"].erase("vocab_size");
  EXPECT_THAT(message_of([&] { read_root(); }),
              HasSubstr("config.json: text_config: vocab_size is missing"));
  root.erase("text_config");
  EXPECT_THAT(message_of([&] { read_root(); }),
              HasSubstr("config.json: text_config is missing, expected an object"));
}

TEST_F(ConfigTest, ExpertsAreInTheLayersThatTheStepAndTheListLeave) {
  json c = {{"architectures", {"Qwen3MoeForCausalLM"}},
            {"num_hidden_layers", 6},
            {"num_experts", 8},
            {"num_experts_per_tok", 2},
            {"moe_intermediate_size", 48}};
  EXPECT_EQ(read(c).moe, (MoeConfig{8, 2, 48, false}));
  EXPECT_EQ(read(c).sparse_layers, std::vector<bool>(6, true));
  c["norm_topk_prob"] = true;
  EXPECT_TRUE(read(c).moe.norm_topk_prob);
  c["decoder_sparse_step"] = 2;
  c["mlp_only_layers"] = {3, 100};
  EXPECT_EQ(read(c).sparse_layers, (std::vector<bool>{false, true, false, false, false, true}));
  c["decoder_sparse_step"] = 7;
  EXPECT_TRUE(read(c).sparse_layers.empty());
  EXPECT_FALSE(read(c).is_sparse(0));
  c["mlp_only_layers"] = {-1};
  EXPECT_THAT(error_of(c), HasSubstr("mlp_only_layers has -1, expected a layer"));
  c["mlp_only_layers"] = nullptr;
  c["num_experts_per_tok"] = 9;
  EXPECT_THAT(error_of(c), HasSubstr("9 experts for each token are more than the 8 that there"));
  c["num_experts_per_tok"] = 2;
  c["num_experts"] = 1025;
  EXPECT_THAT(error_of(c), HasSubstr("1025 experts are not supported; there may be 1024"));
  c["num_local_experts"] = 4;
  EXPECT_EQ(read(c).moe.num_experts, 4) << "the name of transformers 5";
  c.erase("moe_intermediate_size");
  EXPECT_THAT(error_of(c), HasSubstr("moe_intermediate_size is missing"));
}

TEST_F(ConfigTest, SaysWhatIsNotSupported) {
  EXPECT_THAT(error_of({{"architectures", {"GemmaForCausalLM"}}}),
              HasSubstr("config.json: architecture 'GemmaForCausalLM' is not supported; supported "
                        "are LlamaForCausalLM, MistralForCausalLM, "
                        "Mistral3ForConditionalGeneration, Qwen2ForCausalLM, "
                        "Qwen3ForCausalLM, Qwen3MoeForCausalLM"));
  EXPECT_THAT(error_of({{"architectures", json::array()}}), HasSubstr("architectures is missing"));
  EXPECT_THAT(error_of({{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}}}),
              HasSubstr("quantization_config has the quant_method \"awq\", which is not supported; "
                        "supported are weights in float32, float16 or bfloat16"));
  EXPECT_EQ(error_of({{"quantization_config", nullptr}}), "no error");
  EXPECT_THAT(error_of({{"hidden_act", "gelu"}}),
              HasSubstr("hidden_act 'gelu' is not supported; supported is silu"));
  EXPECT_THAT(error_of({{"attention_bias", true}}), HasSubstr("attention_bias is true"));
  EXPECT_THAT(error_of({{"mlp_bias", true}}), HasSubstr("mlp_bias is true"));
  EXPECT_THAT(error_of({{"dtype", "float8_e4m3fn"}}), HasSubstr("dtype 'float8_e4m3fn'"));
}

TEST_F(ConfigTest, RefusesSizesThatCannotBe) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "max_position_embeddings"}) {
    EXPECT_THAT(error_of(json::object(), {{key, nullptr}}),
                HasSubstr("config.json: " + std::string(key) + " is missing"));
    for (const json& bad : {json(0), json(-1), json(1.5), json("7"), json(1ULL << 40), json(true)})
      EXPECT_THAT(error_of({{key, bad}}),
                  HasSubstr(std::string(key) + " is " + bad.dump() + ", expected a whole number"));
  }
  EXPECT_THAT(error_of({{"num_key_value_heads", 3}}),
              HasSubstr("4 query heads are not a multiple of 3 key heads"));
  EXPECT_THAT(error_of({{"rms_norm_eps", -1}}), HasSubstr("rms_norm_eps is -1"));
  EXPECT_THAT(error_of({{"tie_word_embeddings", 1}}), HasSubstr("expected true or false"));
}

TEST_F(ConfigTest, SaysWhenThereIsNoConfigOrItIsNotJson) {
  EXPECT_THAT(message_of([this] { read(); }), HasSubstr("has no config.json"));
  write("config.json", "{\"a\": ");
  EXPECT_THAT(message_of([this] { read(); }), HasSubstr("config.json: not valid JSON (at byte"));
  write("config.json", "");
  EXPECT_THAT(message_of([this] { read(); }), HasSubstr("expected JSON, found an empty file"));
  write("config.json", "[]");
  EXPECT_THAT(message_of([this] { read(); }),
              HasSubstr("expected a JSON object, found a JSON arr"));
}

}  // namespace
}  // namespace minisgl::models
