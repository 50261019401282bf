// Where weights come from.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace minisgl {

/// The tensors of a checkpoint under their canonical (Hugging Face) names, whatever the file
/// format. Views into mapped files: host memory, row-major, any storage type (random matrices may
/// lie where they are used).
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// An empty view when there is no such tensor. Throws Error when there is one that cannot be
  /// read: its type is not supported, or see file_faults().
  virtual TensorView find(std::string_view name) const = 0;
  /// All names, ascending.
  virtual std::vector<std::string> names() const = 0;
  /// The pages of `tensor` may leave memory: it has been copied.
  virtual void drop(const TensorView& tensor) const = 0;
  /// Keeps the memory of `tensor` for as long as the result lives, longer than the source if need
  /// be, for a caller that uses it as it lies; its pages are in memory when this returns. Null when
  /// the source cannot do that: the caller must copy.
  virtual std::shared_ptr<const void> share(const TensorView& tensor) const = 0;
  /// What is wrong with the files themselves, a line each: shards that are missing or truncated.
  virtual std::vector<std::string> file_faults() const = 0;
  /// The file or folder, for messages.
  virtual std::string describe() const = 0;
  /// Whether the rows of q_proj and k_proj are stored as adjacent pairs (GGUF of architecture
  /// llama) and not half-split.
  virtual bool has_paired_qk_rows() const = 0;
};

}  // namespace minisgl
