// Inputs that once broke something, and the smallest ones of each kind, through every target again.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "targets.h"

namespace minisgl::fuzz {
namespace {

namespace fs = std::filesystem;

class ReplayTest : public testing::TestWithParam<std::size_t> {};

void run(Target target, const std::string& input) {
  target({reinterpret_cast<const std::byte*>(input.data()), input.size()});
}

TEST_P(ReplayTest, InputsThatBrokeItOnceAreReadOrRefused) {
  const fs::path folder = fs::path(MINISGL_TEST_DATA) / "fuzz" / kTargetNames[GetParam()];
  if (!fs::exists(folder)) GTEST_SKIP() << "nothing has broken it yet";
  for (const auto& item : fs::directory_iterator(folder)) {
    SCOPED_TRACE(item.path().filename().string());
    std::ifstream in(item.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(in), {}};
    const auto start = std::chrono::steady_clock::now();
    run(kTargets[GetParam()], input);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST_P(ReplayTest, NothingAndNextToNothingIsReadOrRefused) {
  run(kTargets[GetParam()], "");
  for (int byte = 0; byte < 256; ++byte) run(kTargets[GetParam()], {static_cast<char>(byte)});
}

INSTANTIATE_TEST_SUITE_P(Targets, ReplayTest, testing::Range<std::size_t>(0, std::size(kTargets)),
                         [](const auto& info) { return std::string(kTargetNames[info.param]); });

}  // namespace
}  // namespace minisgl::fuzz
