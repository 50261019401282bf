// The random numbers of the sampler: a function of a key and a counter, without any state.

#pragma once

#include <array>
#include <cstdint>

namespace minisgl::kernels {

/// Ten rounds of Philox4x32. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
/// 3", and the known-answer vectors of Random123 (philox 4x32 10).
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

}  // namespace minisgl::kernels
