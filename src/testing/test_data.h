// Where the tests' data lies.

#pragma once

#include <cstdlib>
#include <filesystem>

namespace minisgl::testing_util {

/// `built`, or what MINISGL_TEST_DATA says on a machine to which the tests were carried.
inline std::filesystem::path test_data(const char* built) {
  const char* carried = std::getenv("MINISGL_TEST_DATA");
  return carried != nullptr ? carried : built;
}

}  // namespace minisgl::testing_util
