#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "base/math.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

/// Closes on every way out of the constructor; the mapping outlives the descriptor.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::span<const std::byte> extent(const TensorView& tensor) {
  if (tensor.empty() || tensor.numel() == 0) return {};
  std::int64_t elements = tensor.dim(-1);
  for (int i = 0; i < tensor.rank() - 1; ++i) elements += (tensor.dim(i) - 1) * tensor.stride(i);
  return {tensor.data, static_cast<std::size_t>(bytes_of(tensor.dtype, elements))};
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const auto fail = [&path](const std::string& why) {
    throw Error("cannot read " + path.string() + ": " + why);
  };
  // O_NONBLOCK: opening a pipe that nobody writes must be an error below, not a wait for ever.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(std::strerror(errno));
  struct stat status{};
  if (::fstat(file.fd, &status) != 0) fail(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail("it is a folder, expected a file");
  if (!S_ISREG(status.st_mode)) fail("it is not a regular file");
  if (status.st_size == 0) return;  // mmap refuses length 0; the format says what is missing
  const auto size = static_cast<std::size_t>(status.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (memory == MAP_FAILED) fail(std::strerror(errno));
  const auto unmap = [](const std::span<const std::byte>* bytes) {
    ::munmap(const_cast<std::byte*>(bytes->data()), bytes->size());
    delete bytes;
  };
  mapping_ = {new std::span(static_cast<const std::byte*>(memory), size), unmap};
}

bool MappedFile::contains(std::span<const std::byte> part) const {
  const std::less_equal<const std::byte*> not_after;  // `<=` is undefined across objects
  const std::span<const std::byte> all = bytes();
  return !part.empty() && not_after(all.data(), part.data()) &&
         not_after(part.data() + part.size(), all.data() + all.size());
}

void MappedFile::drop(std::span<const std::byte> part) const {
  if (!contains(part)) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = round_up(reinterpret_cast<std::uintptr_t>(part.data()), page);
  const auto end = round_down(reinterpret_cast<std::uintptr_t>(part.data() + part.size()), page);
  // Only advice: when it fails the pages stay, which costs memory and nothing else.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::shared_ptr<const void> MappedFile::share(std::span<const std::byte> part) const {
  if (!contains(part)) return nullptr;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = round_down(reinterpret_cast<std::uintptr_t>(part.data()), page);
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  // Kernels before 5.14 refuse this: the pages then come when they are first read.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
  return mapping_;
}

}  // namespace minisgl
