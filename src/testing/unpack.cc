#include "testing/unpack.h"

#include <lzma.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>

#include "minisgl/error.h"

namespace minisgl::testing_util {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string read_gzip(const std::filesystem::path& path) {
  const auto close = [](gzFile_s* file) { gzclose_r(file); };
  const std::unique_ptr<gzFile_s, decltype(close)> file(gzopen(path.c_str(), "rb"), close);
  if (file == nullptr) throw Error("cannot open " + path.string());
  std::string contents;
  std::array<char, 1 << 16> block{};
  while (true) {
    const int n = gzread(file.get(), block.data(), block.size());
    if (n < 0) throw Error(path.string() + " is not a whole gzip file");
    if (n == 0) return contents;
    contents.append(block.data(), static_cast<std::size_t>(n));
  }
}

std::string read_xz(const std::filesystem::path& path) {
  const std::string packed = read_file(path);
  lzma_stream stream = LZMA_STREAM_INIT;
  const std::unique_ptr<lzma_stream, decltype(&lzma_end)> owner(&stream, lzma_end);
  if (lzma_stream_decoder(&stream, UINT64_MAX, 0) != LZMA_OK) throw Error("liblzma does not start");
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::string contents;
  std::array<char, 1 << 16> block{};
  while (true) {
    stream.next_out = reinterpret_cast<std::uint8_t*>(block.data());
    stream.avail_out = block.size();
    const lzma_ret result = lzma_code(&stream, LZMA_FINISH);
    contents.append(block.data(), block.size() - stream.avail_out);
    if (result == LZMA_STREAM_END) return contents;
    if (result != LZMA_OK) throw Error(path.string() + " is not a whole xz file");
  }
}

}  // namespace

std::string read_unpacked(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return read_file(path);
  const std::filesystem::path xz = path.string() + ".xz";
  return std::filesystem::exists(xz) ? read_xz(xz) : read_gzip(path.string() + ".gz");
}

}  // namespace minisgl::testing_util
