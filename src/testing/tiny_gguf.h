// GGUF files out of the small checkpoints of tests/data/tiny, as llama.cpp's converter would write
// them: the same model in two formats.

#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "tensor/half.h"

namespace minisgl::testing_util {

/// Collects metadata and tensors, then writes a version 3 file.
class GgufWriter {
 public:
  GgufWriter& text(const std::string& key, const std::string& value) {
    entry(key, 8);
    string(metadata_, value);
    return *this;
  }
  GgufWriter& u32(const std::string& key, std::uint32_t value) {
    entry(key, 4);
    raw(metadata_, value);
    return *this;
  }
  GgufWriter& f32(const std::string& key, float value) {
    entry(key, 6);
    raw(metadata_, value);
    return *this;
  }
  /// `ne`: the fastest dimension first. `type`: ggml's number.
  GgufWriter& tensor(const std::string& name, const std::vector<std::uint64_t>& ne,
                     std::uint32_t type, const std::string& data) {
    ++num_tensors_;
    string(directory_, name);
    raw(directory_, static_cast<std::uint32_t>(ne.size()));
    for (const std::uint64_t size : ne) raw(directory_, size);
    raw(directory_, type);
    raw(directory_, static_cast<std::uint64_t>(data_.size()));
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    return *this;
  }
  void write(const std::filesystem::path& path) const {
    std::string file = "GGUF";
    raw(file, std::uint32_t{3});
    raw(file, num_tensors_);
    raw(file, num_entries_);
    file += metadata_ + directory_;
    file.resize((file.size() + 31) / 32 * 32);
    std::ofstream(path, std::ios::binary) << file << data_;
  }

 private:
  template <class T>
  static void raw(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void string(std::string& out, const std::string& value) {
    raw(out, static_cast<std::uint64_t>(value.size()));
    out += value;
  }
  void entry(const std::string& key, std::uint32_t type) {
    ++num_entries_;
    string(metadata_, key);
    raw(metadata_, type);
  }

  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_entries_ = 0;
  std::string metadata_, directory_, data_;
};

/// The GGUF name of a Hugging Face tensor. `norms_after`: the architecture also normalises what
/// comes out of attention and MLP, so that post_attention_layernorm is not the norm before the MLP.
inline std::string gguf_name(std::string name, bool norms_after = false) {
  if (norms_after)
    for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
             {"post_attention_layernorm", "post_attention_norm"},
             {"pre_feedforward_layernorm", "ffn_norm"},
             {"post_feedforward_layernorm", "post_ffw_norm"}})
      if (const std::size_t at = name.find(from); at != std::string::npos)
        name.replace(at, std::strlen(from), to);
  constexpr std::array<std::pair<const char*, const char*>, 18> kReplacements{{
      {"model.layers.", "blk."},
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.qkv_proj", "attn_qkv"},
      {"mlp.gate_up_proj", "ffn_up"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"mlp.gate.", "ffn_gate_inp."},
  }};
  for (const auto& [from, to] : kReplacements)
    if (const std::size_t at = name.find(from); at != std::string::npos)
      name.replace(at, std::strlen(from), to);
  return name;
}

/// A vector as f32 (the converter widens all of them) plus `offset`, a matrix as it is stored.
inline std::string gguf_bytes(const TensorView& tensor, float offset = 0) {
  const auto* data = reinterpret_cast<const char*>(tensor.data);
  if (tensor.rank() > 1 || tensor.dtype == DType::kF32)
    return {data, static_cast<std::size_t>(tensor.bytes())};
  std::string wide;
  visit_float_dtype(tensor.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const float value = to_f32(tensor.as<T>()[i]) + offset;
      wide.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  });
  return wide;
}

/// Rows [head][half][d] -> [head][d][half]: the converter's
/// reshape(heads, 2, head_dim / 2, cols).swapaxes(1, 2).
inline std::string paired_rows(const std::string& bytes, std::int64_t heads, std::int64_t rows) {
  const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(rows);
  const std::int64_t half_dim = rows / heads / 2;
  std::string out;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t d = 0; d < half_dim; ++d)
      for (std::int64_t half = 0; half < 2; ++half)
        out += bytes.substr(static_cast<std::size_t>((head * 2 + half) * half_dim + d) * row_bytes,
                            row_bytes);
  return out;
}

/// The llama3 ramp as divisors [head_dim / 2], in the converter's words.
inline std::string llama3_divisors(const nlohmann::json& rope, std::int64_t head_dim) {
  const double low = rope["low_freq_factor"], high = rope["high_freq_factor"];
  const double original = rope["original_max_position_embeddings"], factor = rope["factor"];
  std::string out;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(rope["rope_theta"].get<double>(), static_cast<double>(i) / head_dim);
    double divisor = factor;
    if (wavelength < original / high) {
      divisor = 1;
    } else if (wavelength <= original / low) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    const auto narrow = static_cast<float>(divisor);
    out.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  }
  return out;
}

/// "blk.0.ffn_up_exps.weight" of "model.layers.0.mlp.experts.7.up_proj.weight"; "" of other names.
inline std::string gguf_stack_name(const std::string& name) {
  const std::size_t experts = name.find(".mlp.experts.");
  if (experts == std::string::npos) return "";
  for (const char* projection : {"gate", "up", "down"})
    if (name.find(std::string(projection) + "_proj") != std::string::npos)
      return gguf_name(name.substr(0, experts)) + ".ffn_" + projection + "_exps.weight";
  return "";
}

/// ggml's number of a type that the writers here make.
inline std::uint32_t ggml_type(DType type) {
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ8_0: return 8;
    case DType::kBF16: return 30;
    default: check(false, "no GGUF of type ", name(type), " is written here");
  }
  __builtin_unreachable();
}

/// How a file stores a matrix.
struct StoredMatrix {
  DType type = DType::kF32;
  std::string bytes;
};
using StoreMatrix = std::function<StoredMatrix(const TensorView&)>;

inline StoredMatrix stored_as_it_is(const TensorView& matrix) {
  return {matrix.dtype, gguf_bytes(matrix)};
}

/// The experts of each projection of each layer, stacked as the converter stacks them.
inline void write_experts(const SafetensorsFolder& weights, std::int64_t num_experts,
                          const StoreMatrix& store, GgufWriter& out) {
  for (const auto& [name, first] : weights.tensors()) {
    const std::size_t at = name.find(".mlp.experts.0.");
    if (at == std::string::npos) continue;
    StoredMatrix stack;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      std::string own = name;
      const StoredMatrix matrix = store(weights.tensors().at(own.replace(
          at, std::strlen(".mlp.experts.0."), ".mlp.experts." + std::to_string(e) + ".")));
      stack.type = matrix.type;
      stack.bytes += matrix.bytes;
    }
    out.tensor(gguf_stack_name(name),
               {static_cast<std::uint64_t>(first.dim(1)), static_cast<std::uint64_t>(first.dim(0)),
                static_cast<std::uint64_t>(num_experts)},
               ggml_type(stack.type), stack.bytes);
  }
}

inline std::string f32_bytes(const nlohmann::json& numbers) {
  std::string out;
  for (const float value : numbers)
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return out;
}

/// What the converter writes for one architecture alone.
inline void write_family_keys(const nlohmann::json& config, const std::string& architecture,
                              std::int64_t head_dim, GgufWriter& out) {
  const std::string prefix = architecture + ".";
  const auto& rope = config["rope_parameters"];
  if (architecture.starts_with("gemma"))
    out.u32(prefix + "attention.sliding_window", config["sliding_window"]);
  if (architecture == "gemma2")
    out.f32(prefix + "attn_logit_softcapping", config["attn_logit_softcapping"])
        .f32(prefix + "final_logit_softcapping", config["final_logit_softcapping"]);
  if (architecture == "gemma3")
    out.f32(prefix + "rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        .text(prefix + "rope.scaling.type", rope["full_attention"]["rope_type"])
        .f32(prefix + "rope.scaling.factor", rope["full_attention"]["factor"]);
  if (architecture == "granite")
    out.f32(prefix + "attention.scale", config["attention_multiplier"])
        .f32(prefix + "embedding_scale", config["embedding_multiplier"])
        .f32(prefix + "residual_scale", config["residual_multiplier"])
        .f32(prefix + "logit_scale", config["logits_scaling"]);
  if (architecture != "phi3") return;
  const double part = rope["partial_rotary_factor"];
  const double original = config["original_max_position_embeddings"];
  const double stretch = config["max_position_embeddings"].get<double>() / original;
  const auto dims = static_cast<std::uint32_t>(part * static_cast<double>(head_dim));
  out.u32(prefix + "rope.dimension_count", dims)
      .u32(prefix + "rope.scaling.original_context_length",
           config["original_max_position_embeddings"])
      .u32(prefix + "attention.sliding_window", 0)
      .f32(prefix + "rope.scaling.attn_factor",
           static_cast<float>(std::sqrt(1 + std::log(stretch) / std::log(original))))
      .tensor("rope_factors_long.weight", {dims / 2}, 0, f32_bytes(rope["long_factor"]))
      .tensor("rope_factors_short.weight", {dims / 2}, 0, f32_bytes(rope["short_factor"]));
}

/// What the converter writes of yarn and of experts.
inline void write_tiny_extras(const nlohmann::json& config, const std::string& architecture,
                              GgufWriter& out) {
  const auto& rope = config["rope_parameters"];
  const std::string key = architecture + ".";
  if (rope.value("rope_type", "") == "yarn") {
    out.text(key + "rope.scaling.type", "yarn").f32(key + "rope.scaling.factor", rope["factor"]);
    out.u32(key + "rope.scaling.original_context_length", rope["original_max_position_embeddings"]);
  }
  if (!config.contains("num_local_experts")) return;
  out.u32(key + "expert_count", config["num_local_experts"]);
  out.u32(key + "expert_used_count", config["num_experts_per_tok"]);
  out.u32(key + "expert_feed_forward_length", config["moe_intermediate_size"]);
}

inline nlohmann::json read_tiny_config(const std::filesystem::path& folder) {
  return nlohmann::json::parse(std::ifstream(folder / "config.json"));
}

/// Writes the checkpoint in `folder` (config.json in the spelling of transformers 5) to `path` as a
/// GGUF of `architecture` ("llama", "qwen3moe", "gemma3", ...). Vectors are f32.
/// Source: llama.cpp conversion/{llama,gemma,granite,phi,olmo}.py.
inline void write_tiny_gguf(const std::filesystem::path& folder, const std::string& architecture,
                            const std::filesystem::path& path,
                            const StoreMatrix& store = stored_as_it_is) {
  const auto config = read_tiny_config(folder);
  const std::int64_t heads = config["num_attention_heads"];
  const std::int64_t kv_heads = config["num_key_value_heads"];
  const std::int64_t head_dim =
      config.value("head_dim", config["hidden_size"].get<std::int64_t>() / heads);
  const auto& rope = config["rope_parameters"];
  GgufWriter out;
  out.text("general.architecture", architecture).text("general.name", folder.filename().string());
  const std::pair<const char*, const char*> kSizes[] = {
      {"block_count", "num_hidden_layers"},
      {"context_length", "max_position_embeddings"},
      {"embedding_length", "hidden_size"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count_kv", "num_key_value_heads"}};
  for (const auto& [key, name] : kSizes) out.u32(architecture + "." + key, config[name]);
  out.u32(architecture + ".attention.key_length", static_cast<std::uint32_t>(head_dim));
  out.u32(architecture + ".attention.value_length", static_cast<std::uint32_t>(head_dim));
  out.f32(architecture + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"]);
  out.f32(architecture + ".rope.freq_base", rope.value("full_attention", rope)["rope_theta"]);
  write_family_keys(config, architecture, head_dim, out);
  const auto& eos = config["eos_token_id"];
  out.u32("tokenizer.ggml.eos_token_id", eos.is_array() ? eos[0] : eos);
  if (eos.is_array()) out.u32("tokenizer.ggml.eot_token_id", eos[1]);
  if (!config["bos_token_id"].is_null())
    out.u32("tokenizer.ggml.bos_token_id", config["bos_token_id"]);
  if (rope.value("rope_type", "") == "llama3")
    out.tensor("rope_freqs.weight", {static_cast<std::uint64_t>(head_dim / 2)}, 0,
               llama3_divisors(rope, head_dim));

  write_tiny_extras(config, architecture, out);
  const bool is_gemma = architecture.starts_with("gemma");
  const bool pairs =
      architecture == "llama" || architecture == "granite" || architecture == "smollm3";
  const SafetensorsFolder weights(folder);
  if (config.contains("num_local_experts"))
    write_experts(weights, config["num_local_experts"], store, out);
  for (const auto& [name, tensor] : weights.tensors()) {
    if (!gguf_stack_name(name).empty()) continue;
    StoredMatrix stored =
        tensor.rank() == 1 ? StoredMatrix{DType::kF32, gguf_bytes(tensor, is_gemma ? 1.0F : 0.0F)}
                           : store(tensor);
    const bool is_q = name.find("q_proj.weight") != std::string::npos;
    const bool is_k = name.find("k_proj.weight") != std::string::npos;
    if (pairs && (is_q || is_k))
      stored.bytes = paired_rows(stored.bytes, is_q ? heads : kv_heads, tensor.dim(0));
    std::vector<std::uint64_t> ne;
    for (int i = tensor.rank() - 1; i >= 0; --i)
      ne.push_back(static_cast<std::uint64_t>(tensor.dim(i)));
    out.tensor(gguf_name(name, is_gemma || architecture == "olmo2"), ne, ggml_type(stored.type),
               stored.bytes);
  }
  out.write(path);
}

/// What write_safetensors() does to tensors, by name.
struct TensorChanges {
  std::function<std::string(const std::string&)> renamed = [](const std::string& name) {
    return name;
  };
  std::function<bool(const std::string&)> keep = [](const std::string&) { return true; };
  std::function<bool(const std::string&)> zero = [](const std::string&) { return false; };
};

/// Writes the tensors of the checkpoint in `folder` to a safetensors file.
inline void write_safetensors(const std::filesystem::path& path,
                              const std::filesystem::path& folder, const TensorChanges& changes) {
  const SafetensorsFolder weights(folder);
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (!changes.keep(name)) continue;
    std::vector<std::int64_t> shape;
    for (int i = 0; i < tensor.rank(); ++i) shape.push_back(tensor.dim(i));
    const std::size_t begin = data.size();
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    if (changes.zero(name)) {
      data.append(bytes, '\0');
    } else {
      data.append(reinterpret_cast<const char*>(tensor.data), bytes);
    }
    header[changes.renamed(name)] = {{"dtype", tensor.dtype == DType::kF32 ? "F32" : "BF16"},
                                     {"shape", shape},
                                     {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream(path, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof(length)) << text << data;
}

}  // namespace minisgl::testing_util
