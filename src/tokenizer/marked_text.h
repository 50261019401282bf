// Text that remembers which parts of it came from a user.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace minisgl {

/// The result of rendering a chat template. Bytes inside a `message_spans` range came from the
/// contents of a message (or a tool, or a document), the others from the template itself: special
/// tokens count only in the latter, so a user cannot write an end-of-turn into a prompt.
struct MarkedText {
  struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const Span&) const = default;
  };

  std::string text;                 ///< UTF-8
  std::vector<Span> message_spans;  ///< byte ranges of `text`: ascending, disjoint, not empty
};

}  // namespace minisgl
