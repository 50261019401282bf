// Regular expressions inside JSON strings.

#pragma once

#include <string>

namespace minisgl {

/// Why xgrammar cannot hold a JSON string to `pattern` (ASCII); "" if it can. Where it can not, it
/// would let quotes and control characters through, and the answer would be no JSON.
std::string json_pattern_error(const std::string& pattern);

}  // namespace minisgl
