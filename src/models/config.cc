#include "models/config.h"

#include <algorithm>
#include <set>
#include <string>

#include "formats/file_kind.h"
#include "formats/json_file.h"
#include "models/architectures.h"
#include "models/config_section.h"
#include "models/family_config.h"
#include "models/generation_config.h"
#include "models/rope_config.h"

namespace minisgl::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Adds the ids of an eos_token_id, which is a number or a list of them. -1 means none.
void add_eos(const JsonSection& section, std::set<TokenId>& ids) {
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

void check_supported(const JsonSection& section, const Architecture& row) {
  if (const json* quantization = section.find("quantization_config")) {
    const std::string method = quantization->is_object() && quantization->contains("quant_method")
                                   ? shown((*quantization)["quant_method"])
                                   : "unknown";
    fail(section.where(),
         "quantization_config has the quant_method " + method +
             ", which is not supported; supported are weights in float32, float16 or bfloat16, "
             "and quantised weights as a GGUF file");
  }
  // Gemma's files also have a hidden_act, which nothing reads.
  const bool is_gelu = row.activation == Activation::kGeluTanh;
  const char* key = is_gelu ? "hidden_activation" : "hidden_act";
  const std::string supported = is_gelu ? "gelu_pytorch_tanh" : "silu";
  const std::string activation = section.find_string(key).value_or(supported);
  if (activation != supported)
    fail(section.where(), std::string(key) + " " + in_quotes(activation) +
                              " is not supported; supported is " + supported);
  // These also add biases to the output and MLP projections, which no supported model has.
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (section.find_bool(bias).value_or(false))
      fail(section.where(), std::string(bias) + " is true, which is not supported");
}

/// Layers before this one see everything; may be 0, or more than there are.
std::int64_t read_max_window_layers(const JsonSection& section, std::int64_t num_layers) {
  constexpr std::int64_t kDefault = 28;
  const json* value = section.find("max_window_layers");
  if (value == nullptr) return std::min(kDefault, num_layers);
  if (!value->is_number_integer() || *value < 0)
    fail(section.where(),
         "max_window_layers is " + shown(*value) + ", expected a number of layers");
  return *value > num_layers ? num_layers : value->get<std::int64_t>();
}

/// moe and sparse_layers; experts in layers (n + 1) % decoder_sparse_step == 0 that mlp_only_layers
/// does not name.
void read_experts(const JsonSection& section, ModelConfig& c) {
  const bool is_new = section.contains("num_local_experts");  // transformers 5
  c.moe.num_experts = section.size(is_new ? "num_local_experts" : "num_experts");
  c.moe.experts_per_token = section.size("num_experts_per_tok");
  c.moe.intermediate_size = section.size("moe_intermediate_size");
  c.moe.norm_topk_prob = section.find_bool("norm_topk_prob").value_or(false);
  const std::int64_t step = section.find_size("decoder_sparse_step").value_or(1);
  for (std::int64_t i = 0; i < c.num_layers; ++i) c.sparse_layers.push_back((i + 1) % step == 0);
  if (const json* dense = section.find("mlp_only_layers")) {
    if (!dense->is_array())
      fail(section.where(), "mlp_only_layers is " + shown(*dense) + ", expected a list");
    for (const json& layer : *dense) {
      if (!layer.is_number_integer() || layer < 0)
        fail(section.where(), "mlp_only_layers has " + shown(layer) + ", expected a layer");
      if (layer < c.num_layers) c.sparse_layers[layer.get<std::size_t>()] = false;
    }
  }
  if (std::find(c.sparse_layers.begin(), c.sparse_layers.end(), true) == c.sparse_layers.end())
    c.sparse_layers.clear();
}

constexpr std::int64_t kDefaultWindow = 4096;  // transformers', for a key that is absent

/// The window of each layer; empty when none has one that is shorter than the context.
std::vector<std::int32_t> read_windows(const JsonSection& section, const Architecture& row,
                                       std::int64_t num_layers, std::int64_t context) {
  if (row.windows == WindowRule::kNone) return {};
  std::int64_t window = section.find_size("sliding_window").value_or(0);
  if (!section.contains("sliding_window")) window = kDefaultWindow;
  if (row.has_window_switch && !section.find_bool("use_sliding_window").value_or(false)) window = 0;

  std::vector<std::int32_t> windows(static_cast<std::size_t>(num_layers));
  const std::vector<bool> sliding = sliding_layers(section, row, num_layers);
  if (!sliding.empty()) {
    for (std::size_t i = 0; i < windows.size(); ++i) {
      if (!sliding[i]) continue;
      if (window == 0)
        fail(section.where(),
             "layer_types has \"sliding_attention\", but no sliding_window is set");
      windows[i] = static_cast<std::int32_t>(window);
    }
  } else {
    const std::int64_t first =
        row.windows == WindowRule::kByLayer ? read_max_window_layers(section, num_layers) : 0;
    std::fill(windows.begin() + first, windows.end(), static_cast<std::int32_t>(window));
  }
  if (window >= context ||
      std::all_of(windows.begin(), windows.end(), [](auto w) { return w == 0; }))
    return {};
  return windows;
}

/// The text part of a model that also sees, with what is said of the whole model.
json text_config(const JsonSection& section) {
  const json* nested = section.find("text_config");
  if (nested == nullptr || !nested->is_object())
    fail(section.where(), "text_config is " + (nested == nullptr ? "missing" : shown(*nested)) +
                              ", expected an object");
  json text = *nested;
  for (const char* key : {"dtype", "torch_dtype", "eos_token_id", "bos_token_id",
                          "tie_word_embeddings", "quantization_config"}) {
    const json* whole = section.find(key);
    if (whole != nullptr && (!text.contains(key) || text[key].is_null())) text[key] = *whole;
  }
  return text;
}

DType read_dtype(const JsonSection& section) {
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

/// Throws Error unless there is a config.json: the folder above the model's, or one of GGUF files,
/// are easily named in its place.
void check_has_config(const fs::path& folder) {
  std::error_code problem;
  if (fs::status(folder / "config.json", problem).type() != fs::file_type::not_found) return;
  std::string hint;
  for (const auto& item : fs::directory_iterator(folder, problem)) {
    const bool gguf = item.path().extension() == ".gguf";
    if (!gguf && !fs::exists(item.path() / "config.json", problem)) continue;
    hint = "; perhaps " + item.path().string() + " was meant";
    break;
  }
  throw Error(folder.string() + " has no config.json, so it is no model's folder" + hint);
}

}  // namespace

ModelConfig read_huggingface_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  check_has_config(folder);
  const json root = read_json_file(path);
  const JsonSection whole(root, path.string());
  const json* names = whole.find("architectures");
  if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string())
    fail(whole.where(), "architectures is missing; expected a list such as [\"LlamaForCausalLM\"]");
  const Architecture& row = find_huggingface(names->front().get<std::string>(), whole.where());
  json text = json::parse(row.defaults);
  text.update(row.text_part ? text_config(whole) : root);
  const JsonSection section(text, whole.where() + (row.text_part ? ": text_config" : ""));
  check_supported(section, row);

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
  if (!has_rope_of_each_kind(section))
    c.rope = read_rope(section, c.head_dim, c.max_position_embeddings);
  if (row.moe) read_experts(section, c);
  c.dtype = read_dtype(section);
  c.layer_windows = read_windows(section, row, c.num_layers, c.max_position_embeddings);
  read_family(section, row, c);

  std::set<TokenId> eos;
  add_eos(section, eos);
  if (const fs::path generation = folder / "generation_config.json"; fs::exists(generation)) {
    const json generation_root = read_json_file(generation);
    add_eos(JsonSection(generation_root, generation.string()), eos);
    c.sampling = read_sampling_defaults(generation_root, generation.string());
  }
  c.eos_token_ids = drawable(eos, c.vocab_size);
  const json* bos = section.find("bos_token_id");
  if (bos != nullptr && bos->is_number_integer() && *bos >= 0 && *bos < c.vocab_size)
    c.bos_token_id = bos->get<TokenId>();
  check_consistent(c, section.where());
  return c;
}

}  // namespace minisgl::models
