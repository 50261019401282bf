#include "testing/gzip.h"

#include <zlib.h>

#include <array>
#include <memory>

#include "minisgl/error.h"

namespace minisgl::testing_util {

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

}  // namespace minisgl::testing_util
