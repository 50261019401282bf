// A file as memory.

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace minisgl {

/// The memory of `tensor` (contiguous in its last dimension) from its first element to its last; of
/// a part of the columns of a matrix with what lies between its rows.
std::span<const std::byte> extent(const TensorView& tensor);

/// A read-only private mapping of a whole file. Copies share it.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error naming `path` and why it cannot be read (missing, a folder, no permission).
  explicit MappedFile(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const {
    return mapping_ ? *mapping_ : std::span<const std::byte>();
  }
  const std::filesystem::path& path() const { return path_; }

  /// The pages that lie wholly in `part` leave this process's memory; reading them again reads the
  /// file. Does nothing for memory that is not of this mapping.
  void drop(std::span<const std::byte> part) const;

  /// Brings the pages of `part` into memory and keeps the mapping for as long as the result lives.
  /// Null for memory that is not of this mapping. The file must stay as it is: what is written to
  /// it may show, and reading what was cut off ends the process.
  std::shared_ptr<const void> share(std::span<const std::byte> part) const;

 private:
  bool contains(std::span<const std::byte> part) const;

  std::filesystem::path path_;
  std::shared_ptr<const std::span<const std::byte>> mapping_;  // null for an empty file
};

}  // namespace minisgl
