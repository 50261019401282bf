#include "models/weight_source.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "formats/file_kind.h"
#include "minisgl/error.h"
#include "models/architectures.h"
#include "models/renamed_weights.h"

namespace minisgl::models {
namespace {

struct NamePair {
  std::string_view gguf;
  std::string_view canonical;
};

constexpr NamePair kOutside[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr NamePair kInLayer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
};

/// "" when there is no row.
std::string_view look_up(std::span<const NamePair> table, std::string_view gguf) {
  for (const NamePair& pair : table)
    if (pair.gguf == gguf) return pair.canonical;
  return {};
}

class SafetensorsWeights final : public WeightSource {
 public:
  explicit SafetensorsWeights(SafetensorsFolder folder) : folder_(std::move(folder)) {}

  TensorView find(std::string_view name) const override {
    if (const auto found = folder_.tensors().find(name); found != folder_.tensors().end())
      return found->second;
    if (const auto why = folder_.unsupported().find(name); why != folder_.unsupported().end())
      throw Error(why->second + " of tensor " + in_quotes(name) +
                  " is not supported; weights may be F32, F16 or BF16, or a GGUF file");
    return {};
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : folder_.tensors()) all.push_back(name);
    for (const auto& [name, why] : folder_.unsupported()) all.push_back(name);
    std::sort(all.begin(), all.end());
    return all;
  }
  void drop(const TensorView& tensor) const override { folder_.drop(tensor); }
  std::string describe() const override { return folder_.path().string(); }
  bool has_paired_qk_rows() const override { return false; }

 private:
  SafetensorsFolder folder_;
};

class GgufWeights final : public WeightSource {
 public:
  explicit GgufWeights(GgufFile file)
      : file_(std::move(file)),
        paired_(find_gguf(file_.get_string("general.architecture"), file_.path().string())
                    .gguf_paired_qk_rows) {
    for (const auto& [name, tensor] : file_.tensors())
      if (!tensors_.emplace(canonical_name(name), tensor).second)
        throw Error(file_.path().string() + ": tensor " + in_quotes(name) +
                    " is there under two names");
  }

  TensorView find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? TensorView() : found->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  void drop(const TensorView& tensor) const override { file_.drop(tensor); }
  std::string describe() const override { return file_.path().string(); }
  bool has_paired_qk_rows() const override { return paired_; }

 private:
  GgufFile file_;
  bool paired_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// Present in some checkpoints and never needed: what they say is computed from the configuration.
bool is_known_extra(std::string_view name) {
  return name == "lm_head.weight" || name == "rope_freqs.weight" ||
         name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

std::string canonical_name(std::string_view gguf_name) {
  const std::size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view suffix = gguf_name.substr(dot);  // ".weight", ".bias"
  const std::string_view stem = gguf_name.substr(0, dot);
  if (!stem.starts_with("blk.")) {
    const std::string_view known = look_up(kOutside, stem);
    return std::string(known.empty() ? stem : known).append(suffix);
  }
  const std::size_t end = stem.find('.', 4);  // of the layer's number
  const std::string_view known =
      end == std::string_view::npos ? "" : look_up(kInLayer, stem.substr(end + 1));
  if (known.empty()) return std::string(gguf_name);
  std::string name = "model.layers.";
  return name.append(stem.substr(4, end - 4)).append(".").append(known).append(suffix);
}

std::unique_ptr<WeightSource> safetensors_weights(SafetensorsFolder folder) {
  return with_published_names(std::make_unique<SafetensorsWeights>(std::move(folder)));
}

std::unique_ptr<WeightSource> gguf_weights(GgufFile file) {
  return with_published_names(std::make_unique<GgufWeights>(std::move(file)));
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return safetensors_weights(SafetensorsFolder(path));
  if (path.extension() == ".safetensors")
    throw Error(path.string() +
                ": expected a GGUF file or a folder; give the folder that this file is in");
  return gguf_weights(GgufFile(path));
}

void check_all_used(const WeightSource& source, const std::set<std::string, std::less<>>& used) {
  constexpr std::size_t kShown = 8;
  std::string listed;
  std::size_t count = 0;
  for (const std::string& name : source.names()) {
    if (used.contains(name) || is_known_extra(name)) continue;
    if (++count <= kShown) listed += (count == 1 ? "" : ", ") + in_quotes(name);
  }
  if (count == 0) return;
  if (count > kShown) listed += " and " + std::to_string(count - kShown) + " more";
  throw Error(source.describe() + ": " + std::to_string(count) +
              (count == 1 ? " tensor" : " tensors") +
              " that the model's architecture does not have: " + listed);
}

}  // namespace minisgl::models
