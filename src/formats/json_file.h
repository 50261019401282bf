// JSON out of files, with errors that name the file.

#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

namespace minisgl {

/// The object in `bytes`. `what` begins the error line: a file's path, and which part of it. Throws
/// Error when it is not JSON (with the position), not an object, nested more than `max_depth` deep
/// (objects and arrays; so that a damaged file cannot fill the memory), or when a key of the
/// outermost object is there twice.
nlohmann::json parse_json_object(std::span<const std::byte> bytes, const std::string& what,
                                 int max_depth = 64);

/// The object that a file holds. Throws Error as above, or when the file cannot be read; a Git LFS
/// pointer is named as such.
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace minisgl
