// libFuzzer's entry point, built once for each target.

#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  minisgl::fuzz::MINISGL_FUZZ_TARGET({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
