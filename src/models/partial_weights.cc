#include "models/partial_weights.h"

#include <utility>

#include "minisgl/error.h"

namespace minisgl::models {

PartialWeights::PartialWeights(std::unique_ptr<WeightSource> source, TensorParts parts)
    : source_(std::move(source)), parts_(std::move(parts)) {}

TensorView PartialWeights::find(std::string_view name) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) return {};
  const TensorPart& part = found->second;
  TensorView whole = source_->find(part.stored);
  if (part.all_rows == 0 || whole.empty()) return whole;
  const bool is_stack = part.matrix >= 0;
  const int rows_at = is_stack ? 1 : 0;
  if (whole.rank() != rows_at + 2 || whole.dim(rows_at) != part.all_rows)
    throw Error(describe() + ": tensor " + part.stored + " has shape " + to_string(whole.shape) +
                ", but the model's configuration needs " + std::to_string(part.all_rows) + " rows");
  if (is_stack) {
    const std::int64_t cols = whole.dim(2);
    whole = whole.slice(part.matrix, part.matrix + 1).reshape({part.all_rows, cols});
  }
  return whole.slice(part.first_row, part.first_row + part.num_rows);
}

std::vector<std::string> PartialWeights::names() const {
  std::vector<std::string> all;
  for (const auto& [name, part] : parts_) all.push_back(name);
  return all;
}

}  // namespace minisgl::models
