// The small checkpoints of tests/data/tiny.

#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "testing/test_data.h"
#include "testing/unpack.h"

namespace minisgl::testing_util {

/// A checkpoint's folder. One with compressed files is unpacked, once a process, to a temporary
/// folder that is removed at exit.
inline std::filesystem::path tiny_model(const std::string& name) {
  namespace fs = std::filesystem;
  struct Unpacked {
    ~Unpacked() {
      std::error_code ignored;
      fs::remove_all(root, ignored);
    }
    const fs::path root =
        fs::temp_directory_path() / ("minisgl_tiny_" + std::to_string(::getpid()));
  };
  static const Unpacked unpacked;
  const fs::path packed = test_data(MINISGL_TEST_DATA) / "tiny" / name;
  const bool is_compressed = std::any_of(fs::directory_iterator(packed), fs::directory_iterator(),
                                         [](const auto& entry) { return is_packed(entry.path()); });
  if (!is_compressed) return packed;
  const fs::path folder = unpacked.root / name;
  if (fs::exists(folder)) return folder;
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(packed)) {
    const fs::path& file = entry.path();
    if (is_packed(file)) {
      std::ofstream(folder / file.stem(), std::ios::binary) << read_unpacked(packed / file.stem());
    } else {
      fs::copy(file, folder / file.filename());
    }
  }
  return folder;
}

}  // namespace minisgl::testing_util
