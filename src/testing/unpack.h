// Compressed test data.

#pragma once

#include <filesystem>
#include <string>

namespace minisgl::testing_util {

/// The contents of `path`, or of `path`.xz or `path`.gz if one of them is there instead. Throws
/// Error naming a file that is missing or damaged.
std::string read_unpacked(const std::filesystem::path& path);

/// Whether the file is one that read_unpacked() unpacks.
inline bool is_packed(const std::filesystem::path& file) {
  return file.extension() == ".xz" || file.extension() == ".gz";
}

}  // namespace minisgl::testing_util
