// Seeds for requests that bring none.

#pragma once

#include <cstdint>
#include <random>

namespace minisgl {

inline std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

/// splitmix64 (Steele, Lea, Flood 2014): numbers that follow one another give unrelated seeds.
inline std::uint64_t mix_seed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace minisgl
