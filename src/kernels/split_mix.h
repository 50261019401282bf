// A generator of random numbers whose place i can be asked for without those before it.

#pragma once

#include <cstdint>

namespace minisgl::kernels {

/// Number `place` of the sequence that SplitMix64 makes from `seed` (Steele, Lea, Flood 2014).
constexpr std::uint64_t split_mix(std::uint64_t seed, std::uint64_t place) {
  std::uint64_t z = seed + (place + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace minisgl::kernels
