// Whether this build has code for NVIDIA GPUs.

#pragma once

namespace minisgl::cuda {

/// Callers of what lies in folders named cuda/ write `if constexpr (cuda::kBuilt)`: the calls are
/// compiled everywhere and linked only where there is something to link.
#ifdef MINISGL_HAS_CUDA
constexpr bool kBuilt = true;
#else
constexpr bool kBuilt = false;
#endif

}  // namespace minisgl::cuda
