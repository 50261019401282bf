// What the targets share: inputs as files, inputs of several parts, and what an error may say.

#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "minisgl/error.h"

namespace minisgl::fuzz {

/// Stands between the parts of an input. Text that a fuzzer's dictionary can hold.
inline constexpr std::string_view kSeparator = "\n=====\n";

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Cuts the part before the first kSeparator off `rest`; all of it when there is none.
std::string_view take_part(std::string_view& rest);

/// A file in memory with the contents given; its path lives as long as the object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view contents);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

/// A folder of this process, emptied and removed at its end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// Replaces the file `name`.
  void write(const std::string& name, std::string_view contents) const;
  void remove(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

/// Aborts with `what` unless `holds`.
void require(bool holds, std::string_view what);

/// Aborts unless what() is one printable line that a person can read, and no broken invariant.
void check_message(const Error& error);

/// Runs `read`, which may throw an Error that passes check_message(); whether it threw none.
template <class Read>
bool accepted(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    check_message(error);
    return false;
  }
}

}  // namespace minisgl::fuzz
