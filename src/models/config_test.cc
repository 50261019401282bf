#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "minisgl/error.h"
#include "models/rope.h"
#include "testing/tiny_gguf.h"

namespace minisgl::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "no error";
}

fs::path tiny(const std::string& name) { return fs::path(MINISGL_TEST_DATA) / "tiny" / name; }

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { fs::create_directories(folder_); }
  ~ConfigTest() override { fs::remove_all(folder_); }

  /// The config.json of a small Llama, with `changes` (a JSON merge patch: null removes a key).
  void write_config(const json& changes, const json& removed = json::object()) const {
    json config = {{"architectures", {"LlamaForCausalLM"}},
                   {"hidden_size", 64},
                   {"intermediate_size", 96},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"vocab_size", 100},
                   {"max_position_embeddings", 256}};
    config.merge_patch(removed);
    config.update(changes);  // keeps nulls, unlike a patch
    write("config.json", config.dump());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  ModelConfig read() const { return read_huggingface_config(folder_); }
  ModelConfig read(const json& changes) const {
    write_config(changes);
    return read();
  }
  std::string error_of(const json& changes, const json& removed = json::object()) const {
    write_config(changes, removed);
    return message_of([this] { read(); });
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("minisgl_config_test_" + std::to_string(::getpid()));
};

TEST_F(ConfigTest, BothSpellingsOfTransformersGiveTheSameModel) {
  for (const char* name :
       {"llama", "llama-f32", "llama-sharded", "llama-tied", "mistral", "qwen2", "qwen3"}) {
    ModelConfig v5 = read_huggingface_config(tiny(name));
    fs::copy_file(tiny(name) / "config.v4.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
    ModelConfig v4 = read();
    EXPECT_EQ(v5.name, name);
    v4.name = v5.name;
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
      error_of({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}),
      HasSubstr("rope_scaling: rope_type 'yarn' is not supported; supported are default, linear"));
  EXPECT_THAT(error_of({{"rope_scaling", {{"rope_type", "llama3"}}}}),
              HasSubstr("rope_scaling: factor is missing"));
  EXPECT_THAT(error_of({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}}),
              HasSubstr("factor is 0, expected a positive number"));
  v4["low_freq_factor"] = 4.0;
  EXPECT_THAT(error_of({{"rope_scaling", v4}}), HasSubstr("low_freq_factor is not below"));
  EXPECT_THAT(error_of({{"rope_scaling", 2}}), HasSubstr("expected an object"));
  EXPECT_THAT(error_of({{"rope_theta", "x"}}), HasSubstr("rope_theta is \"x\""));
}

TEST_F(ConfigTest, ASlidingWindowMattersOnlyWhereItIsUsed) {
  EXPECT_EQ(error_of({{"sliding_window", 64}}), "no error") << "Llama has none";
  const json mistral = {"MistralForCausalLM"};
  EXPECT_EQ(error_of({{"architectures", mistral}, {"sliding_window", nullptr}}), "no error");
  EXPECT_EQ(error_of({{"architectures", mistral}, {"sliding_window", 256}}), "no error")
      << "never shorter than the context";
  EXPECT_THAT(error_of({{"architectures", mistral}, {"sliding_window", 64}}),
              HasSubstr("sliding_window 64 is not supported"));
  json qwen = {{"architectures", {"Qwen2ForCausalLM"}},
               {"sliding_window", 64},
               {"use_sliding_window", false}};
  EXPECT_EQ(error_of(qwen), "no error");
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(error_of(qwen), HasSubstr("sliding_window 64 is not supported"));
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_THAT(error_of(qwen), HasSubstr("layer_types has \"sliding_attention\""));
}

TEST_F(ConfigTest, SaysWhatIsNotSupported) {
  EXPECT_THAT(error_of({{"architectures", {"GemmaForCausalLM"}}}),
              HasSubstr("config.json: architecture 'GemmaForCausalLM' is not supported; supported "
                        "are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
                        "Qwen3ForCausalLM"));
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
  EXPECT_THAT(message_of([this] { read(); }), HasSubstr("config.json: No such file"));
  write("config.json", "{\"a\": ");
  EXPECT_THAT(message_of([this] { read(); }), HasSubstr("config.json: not valid JSON (at byte"));
  write("config.json", "");
  EXPECT_THAT(message_of([this] { read(); }), HasSubstr("expected JSON, found an empty file"));
  write("config.json", "[]");
  EXPECT_THAT(message_of([this] { read(); }),
              HasSubstr("expected a JSON object, found a JSON arr"));
}

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
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("llama.expert_count", 8); }),
              HasSubstr("llama.expert_count is 8; mixtures of experts are not supported"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("llama.attention.sliding_window", 32); }),
              HasSubstr("sliding windows are not supported"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("llama.attention.value_length", 8); }),
              HasSubstr("llama.attention.value_length differs from the key length 4"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.u32("llama.rope.dimension_count", 2); }),
              HasSubstr("llama.rope.dimension_count is 2, expected the whole head of 4"));
  EXPECT_THAT(gguf_error([](Writer& w) { w.text("llama.rope.scaling.type", "yarn"); }),
              HasSubstr("llama.rope.scaling.type 'yarn' is not supported; supported are"));
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

TEST_F(GgufConfigTest, UnknownArchitecturesAreNamed) {
  testing_util::GgufWriter().text("general.architecture", "gemma3").write(folder_ / "x.gguf");
  EXPECT_THAT(message_of([this] { read_gguf_config(GgufFile(folder_ / "x.gguf")); }),
              HasSubstr("x.gguf: architecture 'gemma3' is not supported; supported are llama, "
                        "qwen2, qwen3"));
}

}  // namespace
}  // namespace minisgl::models
