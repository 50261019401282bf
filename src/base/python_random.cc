#include "base/python_random.h"

#include <bit>

#include "base/check.h"

namespace minisgl {

// Matsumoto and Nishimura's init_by_array() for a key of one number. CPython seeds this way
// whatever the seed, so that std::mt19937, which does not, cannot take its place.
PythonRandom::PythonRandom(std::uint32_t seed) {
  const auto mixed = [this](std::size_t i) { return state_[i - 1] ^ (state_[i - 1] >> 30); };
  state_[0] = 19650218;
  for (std::size_t i = 1; i < kSize; ++i)
    state_[i] = 1812433253 * mixed(i) + static_cast<std::uint32_t>(i);
  std::size_t i = 1;
  const auto advance = [&] {
    if (++i < kSize) return;
    state_[0] = state_[kSize - 1];
    i = 1;
  };
  for (std::size_t k = 0; k < kSize; ++k, advance())
    state_[i] = (state_[i] ^ (mixed(i) * 1664525)) + seed;
  for (std::size_t k = 1; k < kSize; ++k, advance())
    state_[i] = (state_[i] ^ (mixed(i) * 1566083941)) - static_cast<std::uint32_t>(i);
  state_[0] = 0x80000000;
}

void PythonRandom::refill() {
  constexpr std::size_t kShift = 397;
  for (std::size_t i = 0; i < kSize; ++i) {
    const std::uint32_t y = (state_[i] & 0x80000000) | (state_[(i + 1) % kSize] & 0x7FFFFFFF);
    state_[i] = state_[(i + kShift) % kSize] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908B0DF : 0);
  }
  at_ = 0;
}

std::uint32_t PythonRandom::next() {
  if (at_ == kSize) refill();
  std::uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680;
  y ^= (y << 15) & 0xEFC60000;
  return y ^ (y >> 18);
}

std::int64_t PythonRandom::randint(std::int32_t low, std::int32_t high) {
  check(low <= high, "randint(", low, ", ", high, "): the range is empty");
  const std::uint32_t last =
      static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low);  // of `last` + 1 numbers
  check(last != 0xFFFFFFFF, "randint(): the range is too large");
  // As many bits as the number of numbers has, until they are one of them.
  const int bits = std::bit_width(last + 1);
  std::uint32_t drawn = 0;
  do drawn = next() >> (32 - bits);
  while (drawn > last);
  return std::int64_t{low} + drawn;
}

}  // namespace minisgl
