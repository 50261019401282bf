// Rows become columns, in registers. Internal linkage only: see vec.h.

#pragma once

#include "kernels/cpu/per_isa/vec.h"

namespace minisgl::kernels::MINISGL_ISA {
namespace {

/// One step of a transposition: lane i of `low` and `high` in turn.
template <int... kI>
struct Lanes {};
template <int kN, int... kI>
struct Count : Count<kN - 1, kN - 1, kI...> {};
template <int... kI>
struct Count<0, kI...> {
  using Type = Lanes<kI...>;
};

template <int... kI>
MINISGL_INLINE void interleave(Vec a, Vec b, Vec& low, Vec& high, Lanes<kI...>) {
  low = __builtin_shufflevector(a, b, ((kI % 2) * kW + kI / 2)...);
  high = __builtin_shufflevector(a, b, ((kI % 2) * kW + kI / 2 + kW / 2)...);
}

/// m[i] lane j <-> m[j] lane i: log2(kW) perfect shuffles of the rows.
MINISGL_INLINE void transpose(Vec (&m)[kW]) {
  for (int step = 1; step < kW; step *= 2) {
    Vec next[kW];
    for (int i = 0; i < kW / 2; ++i)
      interleave(m[i], m[i + kW / 2], next[2 * i], next[2 * i + 1], Count<kW>::Type{});
    for (int i = 0; i < kW; ++i) m[i] = next[i];
  }
}

}  // namespace
}  // namespace minisgl::kernels::MINISGL_ISA
