#include "kernels/cpu/linear_bf16.h"

#include "kernels/simd.h"

namespace minisgl::kernels::cpu {

#if defined(__x86_64__)
extern const Bf16Kernels kBf16Avx512;  // linear_avx512bf16.cc

const Bf16Kernels* bf16_kernels() {
  static const bool machine_has_it = __builtin_cpu_supports("avx512bf16") != 0;
  return machine_has_it && active_simd() == Simd::kAvx512 ? &kBf16Avx512 : nullptr;
}
#else
const Bf16Kernels* bf16_kernels() { return nullptr; }
#endif

}  // namespace minisgl::kernels::cpu
