#include "models/divide.h"

#include <algorithm>
#include <string>

#include "minisgl/error.h"

namespace minisgl::models {
namespace {

/// What does not divide, as text; "" when all does.
std::string obstacles(const ModelConfig& c, std::int64_t ranks) {
  std::string found;
  const auto add = [&](bool divides, std::int64_t size, const char* what) {
    if (divides) return;
    if (!found.empty()) found += ", ";
    found += std::to_string(size) + " " + what;
  };
  bool any_dense = c.sparse_layers.empty();
  for (const bool sparse : c.sparse_layers) any_dense |= !sparse;
  add(c.num_heads % ranks == 0, c.num_heads, "query heads");
  add(c.num_kv_heads % ranks == 0 || ranks % c.num_kv_heads == 0, c.num_kv_heads, "key heads");
  add(!any_dense || c.intermediate_size % ranks == 0, c.intermediate_size, "columns of the MLP");
  add(c.sparse_layers.empty() || c.moe.intermediate_size % ranks == 0, c.moe.intermediate_size,
      "columns of each expert");
  add(c.vocab_size > 8 * ranks * (ranks - 1) || ranks == 1, c.vocab_size, "tokens");
  return found;
}

}  // namespace

bool can_divide(const ModelConfig& config, std::int64_t ranks) {
  return obstacles(config, ranks).empty();
}

void check_divides(const ModelConfig& config, std::int64_t ranks) {
  const std::string found = obstacles(config, ranks);
  if (found.empty()) return;
  std::string possible;
  for (std::int64_t other = 1; other <= config.num_heads; ++other)
    if (can_divide(config, other))
      possible += (possible.empty() ? "" : ", ") + std::to_string(other);
  throw Error("the model cannot be divided over " + std::to_string(ranks) + " ranks: it has " +
              found + "; possible are --tp " + possible);
}

}  // namespace minisgl::models
