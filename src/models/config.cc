#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "formats/file_kind.h"
#include "formats/json_file.h"
#include "minisgl/error.h"
#include "models/architectures.h"
#include "models/generation_config.h"

namespace minisgl::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Products of two sizes fit an int64 and ids an int32; every real model is far below.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 30;

constexpr std::string_view kSupportedRope = "supported are default, linear, llama3";

[[noreturn]] void fail(const std::string& where, const std::string& fault) {
  throw Error(where + ": " + fault);
}

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

/// An object of config.json; a key that is null is a key that is absent.
class Section {
 public:
  Section(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }

  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<std::int64_t> find_size(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || *value < 1 || *value > kMaxSize)
      fail(where_,
           std::string(key) + " is " + shown(*value) + ", expected a whole number from 1 to 2^30");
    return value->get<std::int64_t>();
  }
  std::int64_t size(const char* key) const {
    const std::optional<std::int64_t> value = find_size(key);
    if (!value) fail(where_, std::string(key) + " is missing");
    return *value;
  }
  std::optional<double> find_positive(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>()))
      fail(where_, std::string(key) + " is " + shown(*value) + ", expected a positive number");
    return value->get<double>();
  }
  double positive(const char* key) const {
    const std::optional<double> value = find_positive(key);
    if (!value) fail(where_, std::string(key) + " is missing");
    return *value;
  }
  std::optional<bool> find_bool(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean())
      fail(where_, std::string(key) + " is " + shown(*value) + ", expected true or false");
    return value->get<bool>();
  }
  std::optional<std::string> find_string(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string())
      fail(where_, std::string(key) + " is " + shown(*value) + ", expected a string");
    return value->get<std::string>();
  }

 private:
  const json& object_;
  std::string where_;
};

/// A file may name an end token that its model cannot draw; nobody else has to expect one.
std::vector<TokenId> drawable(const std::set<TokenId>& ids, std::int64_t vocab_size) {
  return {ids.begin(), ids.lower_bound(static_cast<TokenId>(vocab_size))};
}

/// Adds the ids of an eos_token_id, which is a number or a list of them. -1 means none.
void add_eos(const Section& section, std::set<TokenId>& ids) {
  const json* value = section.find("eos_token_id");
  if (value == nullptr) return;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    if (!id.is_number_integer() || id < -1 || id > kMaxSize)
      fail(section.where(),
           "eos_token_id is " + shown(*value) + ", expected a token id or a list of them");
    if (id >= 0) ids.insert(id.get<TokenId>());
  }
}

void check_supported(const Section& section) {
  if (const json* quantization = section.find("quantization_config")) {
    const std::string method = quantization->is_object() && quantization->contains("quant_method")
                                   ? shown((*quantization)["quant_method"])
                                   : "unknown";
    fail(section.where(),
         "quantization_config has the quant_method " + method +
             ", which is not supported; supported are weights in float32, float16 or bfloat16, "
             "and quantised weights as a GGUF file");
  }
  const std::string activation = section.find_string("hidden_act").value_or("silu");
  if (activation != "silu")
    fail(section.where(),
         "hidden_act " + in_quotes(activation) + " is not supported; supported is silu");
  // These also add biases to the output and MLP projections, which no supported model has.
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (section.find_bool(key).value_or(false))
      fail(section.where(), std::string(key) + " is true, which is not supported");
}

void check_no_sliding_window(const Section& section, const Architecture& row,
                             std::int64_t context) {
  if (const json* types = section.find("layer_types")) {
    for (const json& type : *types)
      if (type != "full_attention")
        fail(section.where(), "layer_types has " + shown(type) + "; supported is full_attention");
    return;  // says which layers have a window, whatever the other keys say
  }
  if (!section.find_bool("use_sliding_window").value_or(row.sliding_window_by_default)) return;
  const std::optional<std::int64_t> window = section.find_size("sliding_window");
  if (!window || *window >= context) return;
  fail(section.where(),
       "sliding_window " + std::to_string(*window) +
           " is not supported; the model is the same up to that length without it: set "
           "sliding_window to null and max_position_embeddings to " +
           std::to_string(*window));
}

RopeConfig read_rope(const Section& section) {
  RopeConfig rope;
  if (const std::optional<double> theta = section.find_positive("rope_theta")) rope.theta = *theta;
  const json* scaling = section.find("rope_parameters");  // transformers 5
  const char* key = "rope_parameters";
  if (scaling == nullptr) {
    scaling = section.find("rope_scaling");  // transformers 4
    key = "rope_scaling";
  }
  if (scaling == nullptr) return rope;
  if (!scaling->is_object())
    fail(section.where(), std::string(key) + " is " + shown(*scaling) + ", expected an object");
  const Section inner(*scaling, section.where() + ": " + key);
  if (const std::optional<double> theta = inner.find_positive("rope_theta")) rope.theta = *theta;
  if (inner.find_positive("partial_rotary_factor").value_or(1.0) != 1.0)
    fail(inner.where(), "partial_rotary_factor is not supported unless it is 1");

  const std::string kind =
      inner.find_string("rope_type").value_or(inner.find_string("type").value_or("default"));
  if (kind == "default") return rope;
  if (kind != "linear" && kind != "llama3")
    fail(inner.where(),
         "rope_type " + in_quotes(kind) + " is not supported; " + std::string(kSupportedRope));
  rope.kind = kind == "linear" ? RopeKind::kLinear : RopeKind::kLlama3;
  rope.factor = inner.positive("factor");
  if (rope.kind == RopeKind::kLinear) return rope;
  rope.low_freq_factor = inner.positive("low_freq_factor");
  rope.high_freq_factor = inner.positive("high_freq_factor");
  if (rope.low_freq_factor >= rope.high_freq_factor)
    fail(inner.where(), "low_freq_factor is not below high_freq_factor");
  rope.original_max_position = inner.size("original_max_position_embeddings");
  return rope;
}

DType read_dtype(const Section& section) {
  std::optional<std::string> name = section.find_string("dtype");  // transformers 5
  if (!name) name = section.find_string("torch_dtype");
  if (!name) return DType::kF32;
  const std::string_view bare = std::string_view(*name).substr(name->starts_with("torch.") ? 6 : 0);
  if (bare == "float32") return DType::kF32;
  if (bare == "float16") return DType::kF16;
  if (bare == "bfloat16") return DType::kBF16;
  fail(section.where(),
       "dtype " + in_quotes(*name) + " is not supported; supported are float32, float16, bfloat16");
}

/// What must hold whatever file the sizes came from.
void check_consistent(const ModelConfig& c, const std::string& where) {
  if (c.num_heads % c.num_kv_heads != 0)
    fail(where, std::to_string(c.num_heads) + " query heads are not a multiple of " +
                    std::to_string(c.num_kv_heads) + " key heads");
  if (c.head_dim % 2 != 0)
    fail(where, "head_dim " + std::to_string(c.head_dim) + " is odd; rope needs pairs");
}

std::int64_t default_head_dim(std::int64_t hidden, std::int64_t heads, const std::string& where) {
  if (hidden % heads == 0) return hidden / heads;
  fail(where, "hidden size " + std::to_string(hidden) + " is not a multiple of " +
                  std::to_string(heads) + " heads, and there is no head_dim");
}

}  // namespace

ModelConfig read_huggingface_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  const json root = read_json_file(path);
  const Section section(root, path.string());
  const json* names = section.find("architectures");
  if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string())
    fail(section.where(),
         "architectures is missing; expected a list such as [\"LlamaForCausalLM\"]");
  const Architecture& row = find_huggingface(names->front().get<std::string>(), section.where());
  check_supported(section);

  ModelConfig c;
  c.architecture = row.huggingface;
  c.name = fs::absolute(folder / ".").parent_path().filename().string();
  c.num_layers = section.size("num_hidden_layers");
  c.hidden_size = section.size("hidden_size");
  c.intermediate_size = section.size("intermediate_size");
  c.num_heads = section.size("num_attention_heads");
  c.num_kv_heads = section.find_size("num_key_value_heads").value_or(c.num_heads);
  c.vocab_size = section.size("vocab_size");
  c.max_position_embeddings = section.size("max_position_embeddings");
  const std::optional<std::int64_t> head_dim = section.find_size("head_dim");
  c.head_dim = head_dim ? *head_dim : default_head_dim(c.hidden_size, c.num_heads, section.where());
  c.rms_norm_eps = section.find_positive("rms_norm_eps").value_or(1e-6);
  c.tie_word_embeddings = section.find_bool("tie_word_embeddings").value_or(false);
  c.qkv_bias = row.qkv_bias;
  c.qk_norm = row.qk_norm;
  c.rope = read_rope(section);
  c.dtype = read_dtype(section);
  check_no_sliding_window(section, row, c.max_position_embeddings);

  std::set<TokenId> eos;
  add_eos(section, eos);
  if (const fs::path generation = folder / "generation_config.json"; fs::exists(generation)) {
    const json generation_root = read_json_file(generation);
    add_eos(Section(generation_root, generation.string()), eos);
    c.sampling = read_sampling_defaults(generation_root, generation.string());
  }
  c.eos_token_ids = drawable(eos, c.vocab_size);
  const json* bos = section.find("bos_token_id");
  if (bos != nullptr && bos->is_number_integer() && *bos >= 0 && *bos < c.vocab_size)
    c.bos_token_id = bos->get<TokenId>();
  check_consistent(c, section.where());
  return c;
}

namespace {

/// The metadata of one architecture: keys are "llama.block_count" for name "block_count".
class GgufSection {
 public:
  GgufSection(const GgufFile& file, std::string_view architecture)
      : file_(file), where_(file.path().string()), prefix_(std::string(architecture) + ".") {}

  const std::string& where() const { return where_; }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  std::optional<std::int64_t> find_size(std::string_view name) const {
    const std::optional<std::int64_t> value = file_.find_int(key(name));
    if (value && (*value < 1 || *value > kMaxSize))
      fail(where_, key(name) + " is " + std::to_string(*value) + ", expected 1 to 2^30");
    return value;
  }
  std::int64_t size(std::string_view name) const {
    file_.get_int(key(name));  // says when it is missing
    return *find_size(name);
  }
  std::optional<double> find_positive(std::string_view name) const {
    const std::optional<double> value = file_.find_float(key(name));
    if (value && !(*value > 0 && std::isfinite(*value)))
      fail(where_, key(name) + " is " + std::to_string(*value) + ", expected a positive number");
    return value;
  }
  std::optional<std::string> find_string(std::string_view name) const {
    return file_.find_string(key(name));
  }

 private:
  const GgufFile& file_;
  std::string where_;
  std::string prefix_;
};

/// rope_freqs.weight, by which llama.cpp's converter stores the llama3 ramp.
std::vector<float> read_divisors(const GgufFile& file, std::int64_t head_dim) {
  const auto found = file.tensors().find("rope_freqs.weight");
  if (found == file.tensors().end()) return {};
  const TensorView& tensor = found->second;
  if (tensor.dtype != DType::kF32 || tensor.shape != Shape{head_dim / 2})
    fail(file.path().string(), "tensor rope_freqs.weight is " + std::string(name(tensor.dtype)) +
                                   " " + to_string(tensor.shape) + ", expected f32 " +
                                   to_string(Shape{head_dim / 2}));
  const auto* values = tensor.as<float>();
  std::vector<float> divisors(values, values + tensor.numel());
  for (const float value : divisors)
    if (!(value > 0) || !std::isfinite(value))
      fail(file.path().string(), "tensor rope_freqs.weight is not positive");
  return divisors;
}

RopeConfig read_gguf_rope(const GgufFile& file, const GgufSection& section, std::int64_t head_dim) {
  RopeConfig rope;
  rope.theta = section.find_positive("rope.freq_base").value_or(10000.0);
  const std::int64_t rotated = section.find_size("rope.dimension_count").value_or(head_dim);
  if (rotated != head_dim)
    fail(section.where(), section.key("rope.dimension_count") + " is " + std::to_string(rotated) +
                              ", expected the whole head of " + std::to_string(head_dim));
  // rope.scale_linear is the key of older files.
  std::optional<double> factor = section.find_positive("rope.scaling.factor");
  if (!factor) factor = section.find_positive("rope.scale_linear");
  const std::string kind =
      section.find_string("rope.scaling.type").value_or(factor ? "linear" : "none");
  if (kind != "none" && kind != "linear")
    fail(section.where(), section.key("rope.scaling.type") + " " + in_quotes(kind) +
                              " is not supported; " + std::string(kSupportedRope));
  if (kind == "linear") {
    rope.factor = factor.value_or(1.0);
    rope.kind = rope.factor == 1.0 ? RopeKind::kDefault : RopeKind::kLinear;
  }
  rope.divisors = read_divisors(file, head_dim);
  return rope;
}

/// The type that most elements have.
DType prevailing_dtype(const GgufFile& file) {
  std::map<DType, std::int64_t> elements;
  for (const auto& [name, tensor] : file.tensors()) elements[tensor.dtype] += tensor.numel();
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? DType::kF32 : most->first;
}

void check_gguf_supported(const GgufFile& file, const GgufSection& section, std::int64_t context) {
  if (const std::int64_t parts = file.find_int("split.count").value_or(1); parts > 1)
    fail(section.where(),
         "is one of " + std::to_string(parts) +
             " parts; split files are not supported: join them with llama-gguf-split --merge");
  if (const std::int64_t experts = file.find_int(section.key("expert_count")).value_or(0);
      experts > 0)
    fail(section.where(), section.key("expert_count") + " is " + std::to_string(experts) +
                              "; mixtures of experts are not supported");
  const std::int64_t window = file.find_int(section.key("attention.sliding_window")).value_or(0);
  if (window > 0 && window < context)
    fail(section.where(), section.key("attention.sliding_window") + " is " +
                              std::to_string(window) + "; sliding windows are not supported");
}

/// Vocabulary, from the embedding [vocab, hidden].
std::int64_t read_vocab_size(const GgufFile& file, std::int64_t hidden) {
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding == file.tensors().end())
    fail(file.path().string(), "tensor token_embd.weight is missing");
  const Shape& shape = embedding->second.shape;
  if (shape.rank != 2 || shape[1] != hidden || shape[0] > kMaxSize)
    fail(file.path().string(), "tensor token_embd.weight is " + to_string(shape) +
                                   ", expected [vocabulary, " + std::to_string(hidden) + "]");
  return shape[0];
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const Architecture& row =
      find_gguf(file.get_string("general.architecture"), file.path().string());
  const GgufSection section(file, row.gguf);
  ModelConfig c;
  c.architecture = row.huggingface;
  c.name = file.find_string("general.name").value_or(file.path().stem().string());
  c.num_layers = section.size("block_count");
  c.hidden_size = section.size("embedding_length");
  c.intermediate_size = section.size("feed_forward_length");
  c.num_heads = section.size("attention.head_count");
  c.num_kv_heads = section.find_size("attention.head_count_kv").value_or(c.num_heads);
  c.max_position_embeddings = section.size("context_length");
  check_gguf_supported(file, section, c.max_position_embeddings);
  const std::optional<std::int64_t> head_dim = section.find_size("attention.key_length");
  c.head_dim = head_dim ? *head_dim : default_head_dim(c.hidden_size, c.num_heads, section.where());
  if (section.find_size("attention.value_length").value_or(c.head_dim) != c.head_dim)
    fail(section.where(), section.key("attention.value_length") + " differs from the key length " +
                              std::to_string(c.head_dim) + ", which is not supported");
  file.get_float(section.key("attention.layer_norm_rms_epsilon"));  // says when it is missing
  c.rms_norm_eps = *section.find_positive("attention.layer_norm_rms_epsilon");
  c.vocab_size = read_vocab_size(file, c.hidden_size);
  c.tie_word_embeddings = !file.tensors().contains("output.weight");
  c.qkv_bias = row.qkv_bias;
  c.qk_norm = row.qk_norm;
  c.rope = read_gguf_rope(file, section, c.head_dim);
  c.dtype = prevailing_dtype(file);

  std::set<TokenId> eos;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    // -1, which an unsigned key holds as 2^32 - 1, means none.
    const std::optional<std::int64_t> id = file.find_int(key);
    if (id && *id >= 0 && *id < std::numeric_limits<TokenId>::max())
      eos.insert(static_cast<TokenId>(*id));
  }
  c.eos_token_ids = drawable(eos, c.vocab_size);
  const std::optional<std::int64_t> bos = file.find_int("tokenizer.ggml.bos_token_id");
  if (bos && *bos >= 0 && *bos < c.vocab_size) c.bos_token_id = static_cast<TokenId>(*bos);
  check_consistent(c, section.where());
  return c;
}

}  // namespace minisgl::models
