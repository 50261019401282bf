// For tests of this layer: runs a test for each instruction set.

#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/simd.h"

namespace minisgl::kernels {

/// Chooses the instruction set that the test's parameter names, and "auto" afterwards.
class SimdTest : public testing::TestWithParam<Simd> {
 protected:
  void SetUp() override { set_simd(name(GetParam())); }
  void TearDown() override { set_simd("auto"); }
};

inline std::string simd_name(const testing::TestParamInfo<Simd>& info) {
  return std::string(name(info.param));
}

}  // namespace minisgl::kernels
