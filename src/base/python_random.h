// The numbers of Python's random module, so that a workload made there can be made here.

#pragma once

#include <array>
#include <cstdint>

namespace minisgl {

/// random.Random(seed): the Mersenne Twister MT19937, seeded and drawn from as CPython does
/// (Modules/_randommodule.c, Lib/random.py). The same numbers since Python 3.2.
class PythonRandom {
 public:
  /// random.seed(seed).
  explicit PythonRandom(std::uint32_t seed);

  /// random.randint(low, high): uniform, both ends included; low <= high.
  std::int64_t randint(std::int32_t low, std::int32_t high);

 private:
  static constexpr std::size_t kSize = 624;

  std::uint32_t next();
  void refill();

  std::array<std::uint32_t, kSize> state_{};
  std::size_t at_ = kSize;
};

}  // namespace minisgl
