// Compressed test data.

#pragma once

#include <filesystem>
#include <string>

namespace minisgl::testing_util {

/// The contents of a gzip file. Throws Error naming a file that is missing or damaged.
std::string read_gzip(const std::filesystem::path& path);

}  // namespace minisgl::testing_util
