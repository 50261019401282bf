#pragma once

#include <cstdint>

namespace minisgl {

/// The smallest integer >= a / b, for a >= 0 and b > 0.
template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

/// The smallest multiple of `unit` >= a.
template <class T>
constexpr T round_up(T a, T unit) {
  return ceil_div(a, unit) * unit;
}

/// The largest multiple of `unit` <= a.
template <class T>
constexpr T round_down(T a, T unit) {
  return a / unit * unit;
}

}  // namespace minisgl
