// Environment variables with a type.

#pragma once

#include <cstdint>

namespace minisgl {

/// The value of `name`, or `fallback` when it is unset or empty. Throws Error naming variable and
/// value when it does not parse.
double env_double(const char* name, double fallback);
std::int64_t env_int(const char* name, std::int64_t fallback);
/// 1, true, yes, on and their opposites, in any case.
bool env_bool(const char* name, bool fallback);

}  // namespace minisgl
