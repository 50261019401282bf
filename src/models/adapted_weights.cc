#include "models/adapted_weights.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/error.h"
#include "models/architectures.h"

namespace minisgl::models {
namespace {

/// Rows first .. first + count of a tensor that has `all` rows; all 0: the whole tensor as it is.
struct Part {
  std::string tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t all = 0;
};

class AdaptedWeights final : public WeightSource {
 public:
  AdaptedWeights(std::unique_ptr<WeightSource> source, const ModelConfig& config)
      : source_(std::move(source)),
        q_rows_(config.num_heads * config.head_dim),
        kv_rows_(config.num_kv_heads * config.head_dim),
        mlp_rows_(config.intermediate_size) {
    for (const std::string& name : source_->names())
      if (!add_parts(name)) parts_[name] = {name};
  }

  TensorView find(std::string_view name) const override {
    const auto found = parts_.find(name);
    if (found == parts_.end()) return {};
    const Part& part = found->second;
    const TensorView whole = source_->find(part.tensor);
    if (part.all == 0 || whole.empty()) return whole;
    if (whole.rank() != 2 || whole.dim(0) != part.all)
      throw Error(describe() + ": tensor " + part.tensor + " has shape " + to_string(whole.shape) +
                  ", but the model's configuration needs " + std::to_string(part.all) + " rows");
    return whole.slice(part.first, part.first + part.count);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, part] : parts_) all.push_back(name);
    return all;
  }
  void drop(const TensorView& tensor) const override { source_->drop(tensor); }
  std::vector<std::string> file_faults() const override { return source_->file_faults(); }
  std::string describe() const override { return source_->describe(); }
  bool has_paired_qk_rows() const override { return source_->has_paired_qk_rows(); }

 private:
  /// False if the tensor is not a merged one.
  bool add_parts(const std::string& name) {
    constexpr std::string_view kQkv = "self_attn.qkv_proj.weight";
    if (name.ends_with(kQkv)) {
      const std::string scope = name.substr(0, name.size() - kQkv.size()) + "self_attn.";
      const std::int64_t all = q_rows_ + 2 * kv_rows_;
      parts_[scope + "q_proj.weight"] = {name, 0, q_rows_, all};
      parts_[scope + "k_proj.weight"] = {name, q_rows_, kv_rows_, all};
      parts_[scope + "v_proj.weight"] = {name, q_rows_ + kv_rows_, kv_rows_, all};
      return true;
    }
    for (const std::string_view gate_up : {"mlp.gate_up_proj.weight", "mlp.up_proj.weight"}) {
      if (!name.ends_with(gate_up)) continue;
      const std::string scope = name.substr(0, name.size() - gate_up.size()) + "mlp.";
      parts_[scope + "gate_proj.weight"] = {name, 0, mlp_rows_, 2 * mlp_rows_};
      parts_[scope + "up_proj.weight"] = {name, mlp_rows_, mlp_rows_, 2 * mlp_rows_};
      return true;
    }
    return false;
  }

  std::unique_ptr<WeightSource> source_;
  std::int64_t q_rows_, kv_rows_, mlp_rows_;
  std::map<std::string, Part, std::less<>> parts_;
};

}  // namespace

std::unique_ptr<WeightSource> adapted_weights(std::unique_ptr<WeightSource> source,
                                              const ModelConfig& config) {
  const Architecture& row = find_huggingface(config.architecture, source->describe());
  if (!row.merged_projections) return source;
  return std::make_unique<AdaptedWeights>(std::move(source), config);
}

}  // namespace minisgl::models
