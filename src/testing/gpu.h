// Tests that need a GPU.

#pragma once

#include <gtest/gtest.h>

#include <string>

#include "minisgl/error.h"
#include "tensor/cuda/device.h"
#include "tensor/tensor.h"

namespace minisgl::testing_util {

/// "" when there is a GPU that this build can use, else why not.
inline std::string why_no_gpu() {
  if constexpr (!cuda::kBuilt) {
    return "this build has no code for GPUs";
  } else {
    return cuda::num_devices() > 0 ? "" : "there is no GPU: " + cuda::why_no_devices();
  }
}

/// Skips its tests where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// What `act` throws, or "no error".
template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// A copy of `tensor` (contiguous) on `device`, made when the work of `stream` is done.
inline Tensor copy_to(TensorView tensor, Device device, Stream& stream) {
  stream.synchronize();
  return copied_to(tensor, device);
}

}  // namespace minisgl::testing_util
