// Which instruction set the CPU kernels use.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl::kernels {

enum class Simd { kPlain, kAvx2, kAvx512 };

std::string_view name(Simd simd);

/// Those that this machine and this build have, worst first; kPlain is always there.
std::vector<Simd> available_simd();

/// The one in use: the best available, unless set_simd() chose another. Reading is thread-safe.
Simd active_simd();

/// Chooses by name ("plain", "avx2", "avx512", "auto"); call before weights are packed.
/// Throws Error naming those that are available.
void set_simd(std::string_view name);

}  // namespace minisgl::kernels
