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
    {"attn_qkv", "self_attn.qkv_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

/// "" when there is no row.
std::string_view look_up(std::span<const NamePair> table, std::string_view gguf) {
  for (const NamePair& pair : table)
    if (pair.gguf == gguf) return pair.canonical;
  return {};
}

std::string_view layer_name(std::string_view gguf, NormPlacement norms) {
  if (gguf == "ffn_norm" && norms == NormPlacement::kBoth) return "pre_feedforward_layernorm";
  return look_up(kInLayer, gguf);
}

class SafetensorsWeights final : public WeightSource {
 public:
  SafetensorsWeights(SafetensorsFolder folder, FileFaults faults)
      : folder_(std::move(folder)), faults_(std::move(faults)) {}

  TensorView find(std::string_view name) const override {
    if (const auto found = folder_.tensors().find(name); found != folder_.tensors().end())
      return found->second;
    if (const auto why = folder_.unsupported().find(name); why != folder_.unsupported().end())
      throw Error(why->second + " of tensor " + in_quotes(name) +
                  " is not supported; weights may be F32, F16 or BF16, or a GGUF file");
    if (const auto lost = faults_.tensors.find(name); lost != faults_.tensors.end())
      throw Error(faults_.lines[lost->second]);
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
  std::shared_ptr<const void> share(const TensorView& tensor) const override {
    return folder_.share(tensor);
  }
  std::vector<std::string> file_faults() const override { return faults_.lines; }
  std::string describe() const override { return folder_.path().string(); }
  bool has_paired_qk_rows() const override { return false; }

 private:
  SafetensorsFolder folder_;
  FileFaults faults_;
};

class GgufWeights final : public WeightSource {
 public:
  explicit GgufWeights(GgufFile file)
      : file_(std::move(file)),
        row_(find_gguf(file_.get_string("general.architecture"), file_.path().string())) {
    for (const auto& [name, tensor] : file_.tensors())
      if (!tensors_.emplace(canonical_name(name, row_.norms), tensor).second)
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
  std::shared_ptr<const void> share(const TensorView& tensor) const override {
    return file_.share(tensor);
  }
  std::vector<std::string> file_faults() const override { return {}; }
  std::string describe() const override { return file_.path().string(); }
  bool has_paired_qk_rows() const override { return row_.gguf_paired_qk_rows; }

 private:
  GgufFile file_;
  const Architecture& row_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// Present in some checkpoints and never needed: what they say is computed from the configuration.
bool is_known_extra(std::string_view name) {
  return name == "lm_head.weight" || name == "rope_freqs.weight" ||
         name == "rope_factors_long.weight" || name == "rope_factors_short.weight" ||
         name.ends_with(".rotary_emb.inv_freq");
}

/// "2 tensors are missing: a [4], b [4]"; up to kShown of them.
std::string counted(const std::vector<std::string>& items, const char* one, const char* many) {
  constexpr std::size_t kShown = 8;
  std::string out = std::to_string(items.size()) + " " + (items.size() == 1 ? one : many) + ": ";
  for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i)
    out += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > kShown) out += " and " + std::to_string(items.size() - kShown) + " more";
  return out;
}

}  // namespace

std::string canonical_name(std::string_view gguf_name, NormPlacement norms) {
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
      end == std::string_view::npos ? "" : layer_name(stem.substr(end + 1), norms);
  if (known.empty()) return std::string(gguf_name);
  std::string name = "model.layers.";
  return name.append(stem.substr(4, end - 4)).append(".").append(known).append(suffix);
}

std::unique_ptr<WeightSource> safetensors_weights(SafetensorsFolder folder, FileFaults faults) {
  return with_published_names(
      std::make_unique<SafetensorsWeights>(std::move(folder), std::move(faults)));
}

std::unique_ptr<WeightSource> gguf_weights(GgufFile file) {
  return with_published_names(std::make_unique<GgufWeights>(std::move(file)));
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    FileFaults faults;
    SafetensorsFolder folder(path, faults);
    return safetensors_weights(std::move(folder), std::move(faults));
  }
  if (path.extension() == ".safetensors")
    throw Error(path.string() +
                ": expected a GGUF file or a folder; give the folder that this file is in");
  return gguf_weights(GgufFile(path));
}

void check_weights(const WeightSource& source, const layers::WeightFaults& faults,
                   const layers::WantedWeights& wanted) {
  // A shard that cannot be read is one line, however many tensors want it.
  std::vector<std::string> lines = source.file_faults();
  for (const std::string& line : faults.unreadable)
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  if (!faults.undivided.empty()) {
    const std::size_t more = faults.undivided.size() - 1;
    lines.push_back(source.describe() + ": " + faults.undivided[0] +
                    (more == 0 ? "" : ", nor do " + std::to_string(more) + " more") +
                    "; choose another --tp");
  }
  std::vector<std::string> unexpected;
  for (const std::string& name : source.names())
    if (!wanted.contains(name) && !is_known_extra(name)) unexpected.push_back(in_quotes(name));

  std::string tensors;
  const auto add = [&tensors](const std::vector<std::string>& items, const char* one,
                              const char* many) {
    if (!items.empty()) tensors += (tensors.empty() ? "" : "; ") + counted(items, one, many);
  };
  add(faults.missing, "tensor is missing", "tensors are missing");
  add(faults.misshapen, "tensor has another shape than the model's configuration says",
      "tensors have another shape than the model's configuration says");
  add(unexpected, "tensor that the model's architecture does not have",
      "tensors that the model's architecture does not have");
  if (!tensors.empty()) lines.push_back(source.describe() + ": " + tensors);
  if (!lines.empty()) throw Error(FileFaults{.lines = lines}.text());
}

}  // namespace minisgl::models
