#include "models/adapted_weights.h"

#include <string>
#include <string_view>
#include <utility>

#include "models/architectures.h"
#include "models/partial_weights.h"

namespace minisgl::models {
namespace {

struct MergedRows {
  std::int64_t q, kv, mlp;
};

/// False if the tensor is not a merged one.
bool add_parts(const std::string& name, const MergedRows& rows, TensorParts& parts) {
  constexpr std::string_view kQkv = "self_attn.qkv_proj.weight";
  if (name.ends_with(kQkv)) {
    const std::string scope = name.substr(0, name.size() - kQkv.size()) + "self_attn.";
    const std::int64_t all = rows.q + 2 * rows.kv;
    parts[scope + "q_proj.weight"] = {name, 0, rows.q, all};
    parts[scope + "k_proj.weight"] = {name, rows.q, rows.kv, all};
    parts[scope + "v_proj.weight"] = {name, rows.q + rows.kv, rows.kv, all};
    return true;
  }
  for (const std::string_view gate_up : {"mlp.gate_up_proj.weight", "mlp.up_proj.weight"}) {
    if (!name.ends_with(gate_up)) continue;
    const std::string scope = name.substr(0, name.size() - gate_up.size()) + "mlp.";
    parts[scope + "gate_proj.weight"] = {name, 0, rows.mlp, 2 * rows.mlp};
    parts[scope + "up_proj.weight"] = {name, rows.mlp, rows.mlp, 2 * rows.mlp};
    return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<WeightSource> adapted_weights(std::unique_ptr<WeightSource> source,
                                              const ModelConfig& config) {
  const Architecture& row = find_huggingface(config.architecture, source->describe());
  if (!row.merged_projections) return source;
  const MergedRows rows{.q = config.num_heads * config.head_dim,
                        .kv = config.num_kv_heads * config.head_dim,
                        .mlp = config.intermediate_size};
  TensorParts parts;
  for (const std::string& name : source->names())
    if (!add_parts(name, rows, parts)) parts[name] = {name};
  return std::make_unique<PartialWeights>(std::move(source), std::move(parts));
}

}  // namespace minisgl::models
