// safetensors files: a JSON directory of tensors over mapped memory.

#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/mapped_file.h"
#include "tensor/tensor.h"

namespace minisgl {

/// One file. Throws Error from the constructor, naming file and fault: a Git LFS pointer, header
/// longer than 100 MB or than the file, not JSON, offsets that lie beyond the file (a truncated
/// file; the tensors that are cut off are named), overlap, leave holes or disagree with dtype *
/// shape. Nothing is read beyond the mapping. Source of the format: huggingface/safetensors README.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }

  /// Tensors by name; views into the mapping. Older writers do not pad the header, and then no
  /// tensor is aligned to its type: copy an element before using it. A scalar has the shape [1].
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  /// Tensors that are there but cannot be viewed: name -> why ("type F8_E4M3", "5 dimensions").
  /// Opening the file is no error, because a model may not need them.
  const std::map<std::string, std::string, std::less<>>& unsupported() const {
    return unsupported_;
  }
  /// The pages of a tensor, or of a part of its rows or columns with what lies between them, leave
  /// memory (after it was repacked).
  void drop(const TensorView& tensor) const;
  /// See MappedFile::share(). Null for a tensor that does not lie in the file's mapping.
  std::shared_ptr<const void> share(const TensorView& tensor) const;

 private:
  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
};

/// What is wrong with the files of a folder: one line for each file, which begins with its path,
/// and for each tensor that cannot be read because of it the number of that line.
struct FileFaults {
  std::vector<std::string> lines = {};
  std::map<std::string, std::size_t, std::less<>> tensors = {};
  /// "a; b; c and 4 more": as many lines as fit an error.
  std::string text() const;
};

/// "'a', 'b', 'c' and 12 more": names for an error line.
std::string in_quotes_list(const std::vector<std::string>& names);

/// All tensors of a checkpoint folder: those that model.safetensors.index.json lists, out of the
/// shards that it names and no other file; without an index model.safetensors, or, when there is no
/// such file, all of every *.safetensors file (consolidated.safetensors, Mistral's second copy,
/// only when alone).
/// Throws Error naming what is wrong with all files together: shards that are missing or cannot be
/// read, tensors missing from their shard, or one that is in two files; or saying what the folder
/// has instead of safetensors files.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  /// Adds what is wrong with shards of an index to `faults` in place of throwing it, for a caller
  /// that has more to say about the checkpoint.
  SafetensorsFolder(const std::filesystem::path& folder, FileFaults& faults);
  const std::filesystem::path& path() const { return folder_; }

  /// As of one file; why a tensor is unsupported begins with its file.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string, std::less<>>& unsupported() const {
    return unsupported_;
  }
  void drop(const TensorView& tensor) const;
  /// See MappedFile::share(). Null for a tensor that does not lie in the file's mapping.
  std::shared_ptr<const void> share(const TensorView& tensor) const;

 private:
  void read_indexed(const std::filesystem::path& index, FileFaults& faults);
  std::vector<std::string> read_shard(const SafetensorsFile& file,
                                      const std::vector<std::string>& names);
  void read_all(const std::vector<std::filesystem::path>& paths);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
};

}  // namespace minisgl
