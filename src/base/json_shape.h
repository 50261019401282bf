// A look at JSON text before it is parsed.

#pragma once

#include <string>
#include <string_view>

namespace minisgl {

/// Throws RequestError naming `what` if `text` nests deeper than 100 levels (code that walks the
/// parsed value recurses) or has an object of more than 512 keys (a key that is added to an ordered
/// object is compared with all that are there: 60,000 keys took 40 s). Text that is not JSON may
/// pass: the parser refuses it.
void check_json_shape(std::string_view text, const std::string& what);

}  // namespace minisgl
