#include "base/json_shape.h"

#include <array>
#include <cstddef>

#include "minisgl/error.h"

namespace minisgl {

void check_json_shape(std::string_view text, const std::string& what) {
  constexpr std::size_t kMaxDepth = 100;
  constexpr int kMaxKeys = 512;
  std::array<int, kMaxDepth + 1> num_keys{};  // so far, of the object open at each depth
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth)
        throw RequestError(what + " nests deeper than " + std::to_string(kMaxDepth) + " levels");
      num_keys[depth] = 0;
    } else if (c == ']' || c == '}') {
      if (depth == 0) return;  // not JSON
      --depth;
    } else if (c == ':' && ++num_keys[depth] > kMaxKeys) {
      throw RequestError("an object in " + what + " has more than " + std::to_string(kMaxKeys) +
                         " keys");
    }
  }
}

}  // namespace minisgl
