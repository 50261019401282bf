// GGUF files (versions 2 and 3): metadata and a directory of tensors over mapped memory.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/mapped_file.h"
#include "tensor/tensor.h"

namespace minisgl {

/// A metadata value. Integers of all widths are widened; arrays keep their element kind.
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string,
                               std::vector<std::int64_t>, std::vector<std::uint64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

/// Throws Error from the constructor, with one line naming file and fault: not a GGUF file (says
/// what it looks like), a version or tensor type that is not supported (names it and the supported
/// ones), a truncated file (bytes expected and found), overlapping or misaligned tensors, a key
/// twice, lengths that do not fit the file. Nothing is read beyond the mapping.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  int version() const { return version_; }

  const GgufValue* find(std::string_view key) const;
  /// Values by kind; the getters without a default throw Error naming file and key when the key is
  /// missing, and all throw when it is of another kind. Integers convert when they fit.
  std::string get_string(std::string_view key) const;
  std::int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<std::int64_t> find_int(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  const std::vector<std::string>& get_strings(std::string_view key) const;
  const std::vector<std::string>* find_strings(std::string_view key) const;
  /// An array of any integer kind (token types come as int32 or uint32).
  std::vector<std::int64_t> get_ints(std::string_view key) const;
  std::vector<double> get_floats(std::string_view key) const;

  /// Tensors by name; views into the mapping, shape in row-major order (GGUF's `ne` reversed).
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  /// The pages of a tensor leave memory (after it was repacked).
  void drop(const TensorView& tensor) const;
  /// See MappedFile::share(). Null for a tensor that does not lie in the file's mapping.
  std::shared_ptr<const void> share(const TensorView& tensor) const;

 private:
  MappedFile file_;
  int version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// Whether `path` is a regular file that begins with GGUF's magic.
bool is_gguf(const std::filesystem::path& path);

}  // namespace minisgl
