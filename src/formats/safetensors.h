// safetensors files: a JSON directory of tensors over mapped memory.

#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/mapped_file.h"
#include "tensor/tensor.h"

namespace minisgl {

/// One file. Throws Error from the constructor, naming file and fault: a Git LFS pointer, header
/// longer than 100 MB or than the file, not JSON, a type that is not supported, offsets that lie
/// beyond the file, overlap, leave holes or disagree with dtype * shape.
/// Source of the format: huggingface/safetensors README.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  void drop(const TensorView& tensor) const;

 private:
  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// All tensors of a checkpoint folder: the shards that model.safetensors.index.json names, and no
/// other file; without an index every *.safetensors file (consolidated.safetensors only when
/// alone). Throws Error naming a shard that is missing, a tensor missing from its shard, or one
/// that is in two files.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  const std::filesystem::path& path() const { return folder_; }
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  void drop(const TensorView& tensor) const;

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace minisgl
