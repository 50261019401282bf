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
/// longer than 100 MB or than the file, not JSON, offsets that lie beyond the file, overlap, leave
/// holes or disagree with dtype * shape. Nothing is read beyond the mapping.
/// Source of the format: huggingface/safetensors README.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }

  /// Tensors by name; views into the mapping. A scalar has the shape [1].
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  /// Tensors that are there but cannot be viewed: name -> why ("type F8_E4M3", "5 dimensions").
  /// Opening the file is no error, because a model may not need them.
  const std::map<std::string, std::string, std::less<>>& unsupported() const {
    return unsupported_;
  }
  /// The pages of a tensor leave memory (after it was repacked).
  void drop(const TensorView& tensor) const;

 private:
  MappedFile file_;
  std::vector<Buffer> copies_;  // of tensors that are not aligned to their type in the file
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
};

/// All tensors of a checkpoint folder: those that model.safetensors.index.json lists, out of the
/// shards that it names and no other file; without an index model.safetensors, or, when there is no
/// such file, all of every *.safetensors file (consolidated.safetensors, Mistral's second copy,
/// only when alone).
/// Throws Error naming a shard that is missing, a tensor missing from its shard, or one that is
/// in two files; or saying what the folder has instead of safetensors files.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  const std::filesystem::path& path() const { return folder_; }

  /// As of one file; why a tensor is unsupported begins with its file.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string, std::less<>>& unsupported() const {
    return unsupported_;
  }
  void drop(const TensorView& tensor) const;

 private:
  void read_indexed(const std::filesystem::path& index);
  void read_all(const std::vector<std::filesystem::path>& paths);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
};

}  // namespace minisgl
