#include "kernels/cpu/linear_kernels.h"

#include "base/check.h"

namespace minisgl::kernels::cpu {

#if defined(__x86_64__)
extern const LinearKernels kLinearAvx2;    // linear_avx2.cc
extern const LinearKernels kLinearAvx512;  // linear_avx512.cc
#endif

namespace {
#if defined(__x86_64__)
constexpr const LinearKernels* kTable[] = {&kLinearAvx2, &kLinearAvx512};
#else
constexpr std::array<const LinearKernels*, 0> kTable{};
#endif
}  // namespace

const LinearKernels& linear_kernels() {
  const Simd simd = active_simd();
  for (const LinearKernels* kernels : kTable) {
    if (kernels->simd == simd) return *kernels;
  }
  throw Error("weights were packed for a vector instruction set, but '" + std::string(name(simd)) +
              "' is in use; choose it before weights are packed");
}

}  // namespace minisgl::kernels::cpu
