// check(): a broken invariant throws Error and says where.

#pragma once

#include <sstream>

#include "minisgl/error.h"

namespace minisgl {

/// A condition that remembers where it was written. No macro, and no std::source_location, which
/// clang 14 does not have with libstdc++ 12: the two builtins work in every compiler we use.
struct Condition {
  template <class T>
  constexpr Condition(const T& v, const char* f = __builtin_FILE(),  // NOLINT: implicit by design
                      int l = __builtin_LINE())
      : ok(static_cast<bool>(v)), file(f), line(l) {}
  bool ok;
  const char* file;
  int line;
};

/// Throws Error made of `args` and the caller's file and line unless `c` holds. The message is
/// built only on failure, but its arguments are evaluated always: pass values, not costly calls.
template <class... Args>
void check(Condition c, const Args&... args) {
  if (c.ok) [[likely]]
    return;
  std::ostringstream out;
  (out << ... << args);
  out << " [" << c.file << ':' << c.line << ']';
  throw Error(out.str());
}

}  // namespace minisgl
