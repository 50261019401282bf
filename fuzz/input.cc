#include "input.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace minisgl::fuzz {
namespace {

// An error about an input of megabytes is still something to read on a terminal.
constexpr std::size_t kMaxMessage = 2000;

}  // namespace

std::string_view take_part(std::string_view& rest) {
  const std::size_t at = rest.find(kSeparator);
  const std::string_view part = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + kSeparator.size());
  return part;
}

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

void check_message(const Error& error) {
  const std::string_view text = error.what();
  const bool printable = std::ranges::none_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
  });
  const bool ours = text.ends_with(']') && (text.find(".cc:") != std::string_view::npos ||
                                            text.find(".h:") != std::string_view::npos);
  if (!text.empty() && printable && !ours && text.size() <= kMaxMessage) return;
  std::fprintf(stderr, "fuzz: not an error for a person: %s\n", error.what());
  std::abort();
}

MemoryFile::MemoryFile(std::string_view contents)
    : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)),
      path_("/proc/self/fd/" + std::to_string(descriptor_)) {
  require(descriptor_ >= 0, "memfd_create() failed");
  for (std::size_t done = 0; done < contents.size();) {
    const ssize_t count = ::write(descriptor_, contents.data() + done, contents.size() - done);
    require(count > 0, "write() failed");
    done += static_cast<std::size_t>(count);
  }
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

Folder::Folder() {
  // In memory where there is such a place: a busy disk once took seconds to open a file.
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path parent =
      std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  std::string pattern = (parent / "minisgl-fuzz-XXXXXX").string();
  require(mkdtemp(pattern.data()) != nullptr, "mkdtemp() failed");
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Folder::write(const std::string& name, std::string_view contents) const {
  std::ofstream out(path_ / name, std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  require(out.good(), "cannot write to a temporary folder");
}

void Folder::remove(const std::string& name) const {
  std::error_code ignored;
  std::filesystem::remove(path_ / name, ignored);
}

}  // namespace minisgl::fuzz
