#include "kernels/simd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>

#include "base/check.h"

namespace minisgl::kernels {
namespace {

constexpr Simd kAll[] = {Simd::kPlain, Simd::kAvx2, Simd::kAvx512};

#if defined(__x86_64__)
/// What __builtin_cpu_supports("f16c") is, which clang does not know before version 15.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/// The sets of features are those that cmake/layers.cmake compiles *_avx2.cc and *_avx512.cc for.
bool machine_has(Simd simd) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
                    __builtin_cpu_supports("bmi2");
  switch (simd) {
    case Simd::kPlain: return true;
    case Simd::kAvx2: return avx2;
    case Simd::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return simd == Simd::kPlain;
#endif
}

std::atomic<Simd>& chosen() {
  static std::atomic<Simd> simd{available_simd().back()};
  return simd;
}

}  // namespace

std::string_view name(Simd simd) {
  switch (simd) {
    case Simd::kPlain: return "plain";
    case Simd::kAvx2: return "avx2";
    case Simd::kAvx512: return "avx512";
  }
  return "?";
}

std::vector<Simd> available_simd() {
  std::vector<Simd> found;
  for (const Simd simd : kAll) {
    if (machine_has(simd)) found.push_back(simd);
  }
  return found;
}

Simd active_simd() { return chosen().load(std::memory_order_relaxed); }

void set_simd(std::string_view wanted) {
  const std::vector<Simd> found = available_simd();
  if (wanted == "auto") {
    chosen().store(found.back());
    return;
  }
  std::string names = "auto";
  for (const Simd simd : found) {
    if (name(simd) == wanted) {
      chosen().store(simd);
      return;
    }
    names += ", " + std::string(name(simd));
  }
  throw Error("no instruction set '" + std::string(wanted) +
              "' on this machine; available: " + names);
}

}  // namespace minisgl::kernels
