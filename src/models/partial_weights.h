// Tensors that are parts of the tensors of a checkpoint, or have other names there.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layers/weight_source.h"

namespace minisgl::models {

/// A stored tensor, or rows of it.
struct TensorPart {
  std::string stored;          ///< its name in the checkpoint
  std::int64_t first_row = 0;  ///< rows [first_row, first_row + num_rows) of all_rows
  std::int64_t num_rows = 0;
  std::int64_t all_rows = 0;  ///< 0: the whole tensor, as it is
  /// >= 0: the rows are those of matrix `matrix` of a tensor [matrices, all_rows, cols].
  std::int64_t matrix = -1;
};

/// By the name under which layers ask for it.
using TensorParts = std::map<std::string, TensorPart, std::less<>>;

/// The named parts of `source`'s tensors, and nothing else: views of the same memory.
///
/// Errors   find() throws Error naming a tensor which does not have the rows that it is to have.
class PartialWeights final : public WeightSource {
 public:
  PartialWeights(std::unique_ptr<WeightSource> source, TensorParts parts);

  TensorView find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  void drop(const TensorView& tensor) const override { source_->drop(tensor); }
  std::shared_ptr<const void> share(const TensorView& tensor) const override {
    return source_->share(tensor);
  }
  std::vector<std::string> file_faults() const override { return source_->file_faults(); }
  std::string describe() const override { return source_->describe(); }
  bool has_paired_qk_rows() const override { return source_->has_paired_qk_rows(); }

 private:
  std::unique_ptr<WeightSource> source_;
  TensorParts parts_;
};

}  // namespace minisgl::models
