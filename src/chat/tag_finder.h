// A mark in a text that arrives byte by byte.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minisgl {

/// Finds the first occurrence of `tag`, and holds back what may be the beginning of it: the longest
/// suffix of the text so far that is a proper prefix of the tag (Knuth, Morris and Pratt).
class TagFinder {
 public:
  /// `tag` must not be empty.
  explicit TagFinder(std::string tag);

  /// Takes the next byte. Appends to `passed` what can no longer be part of the tag. True when the
  /// tag is complete; then the finder starts anew.
  bool push(char c, std::string& passed);
  /// What is held back, at the end of the text.
  std::string flush() { return tag_.substr(0, std::exchange(matched_, 0)); }

 private:
  std::string tag_;
  std::vector<std::size_t> border_;  // of tag_[0, i]: its longest proper prefix that is a suffix
  std::size_t matched_ = 0;
};

}  // namespace minisgl
