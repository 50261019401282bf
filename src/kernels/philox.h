// The random numbers of the sampler: a function of a key and a counter, without any state.

#pragma once

#include <array>
#include <cstdint>

namespace minisgl::kernels {

/// Ten rounds of Philox4x32. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
/// 3", and the known-answer vectors of Random123 (philox 4x32 10).
///
/// constexpr so that device code may call it.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// The 32 random bits of a draw: uniform in [0, 2^32).
constexpr std::uint32_t philox_bits(std::uint64_t seed, std::uint64_t position) {
  constexpr int kWord = 32;
  return philox4x32(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> kWord), 0, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> kWord)})[0];
}

}  // namespace minisgl::kernels
