// What xgrammar has to say while it compiles.

#pragma once

#include <string>

namespace minisgl {

/// While it lives, warnings of xgrammar on this thread are kept instead of logged. It warns where
/// it ignores a part of what it was asked to enforce. Scopes do not nest.
class XgrammarWarnings {
 public:
  XgrammarWarnings();
  ~XgrammarWarnings();
  XgrammarWarnings(const XgrammarWarnings&) = delete;
  XgrammarWarnings& operator=(const XgrammarWarnings&) = delete;

  /// The first one; "" if there was none.
  const std::string& first() const { return first_; }

 private:
  friend struct XgrammarLog;
  std::string first_;
};

}  // namespace minisgl
