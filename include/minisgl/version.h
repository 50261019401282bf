// The version of the project, as CMakeLists.txt states it.

#pragma once

namespace minisgl {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace minisgl
