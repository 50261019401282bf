#include "kernels/cpu/table.h"

#include "base/check.h"
#include "base/math.h"
#include "kernels/attention_tiles.h"
#include "kernels/simd.h"

namespace minisgl::kernels {

// Made by per_isa/table.cc, which is compiled once for each.
namespace plain {
extern const CpuKernels kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const CpuKernels kTable;
}
namespace avx512 {
extern const CpuKernels kTable;
}
#endif

namespace {

struct Entry {
  Simd simd;
  const CpuKernels* kernels;
};

constexpr Entry kKernels[] = {
    {Simd::kPlain, &plain::kTable},
#if defined(__x86_64__)
    {Simd::kAvx2, &avx2::kTable},
    {Simd::kAvx512, &avx512::kTable},
#endif
};

}  // namespace

const CpuKernels& cpu_kernels() {
  const Simd simd = active_simd();
  for (const Entry& entry : kKernels)
    if (entry.simd == simd) return *entry.kernels;
  check(false, "no kernels for instruction set ", name(simd));
  __builtin_unreachable();
}

std::int64_t attention_scratch_floats(std::int32_t head_dim) {
  const std::int64_t padded = round_up(head_dim, 16);
  const std::int64_t tiles = 2 * kAttentionTile * padded;  // keys transposed, values padded
  const std::int64_t rows = kAttentionRows * (3 * padded + 16 + 16);  // query, two states
  return tiles + rows + 16 * kAttentionTile;                          // scores of a group of rows
}

}  // namespace minisgl::kernels
