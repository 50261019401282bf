// SHA-256 of large files and git's SHA-1 of small ones, while they arrive.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace minisgl::pull {

/// What a hub tells of a file's contents.
enum class Hash {
  kNone,     ///< nothing
  kSha256,   ///< of the contents: files in LFS
  kGitBlob,  ///< SHA-1 of "blob <size>", a zero byte and the contents
};

/// Takes the bytes in order, then gives the digest in hexadecimal.
class Digest {
 public:
  /// `size` of the whole file, which a git blob begins with. Hash::kNone gives "".
  Digest(Hash hash, std::int64_t size);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void update(std::span<const std::byte> bytes);
  /// Call once.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace minisgl::pull
