// A file as memory.

#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace minisgl {

/// A read-only private mapping of a whole file. Move-only.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error naming `path` and why it cannot be read (missing, a folder, no permission).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// The pages that lie wholly in `part` leave this process's memory; reading them again reads the
  /// file. Does nothing for memory that is not of this mapping.
  void drop(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace minisgl
