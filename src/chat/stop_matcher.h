// Ends an answer at a stop string that may arrive in pieces.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

/// Passes text through until one of the stop strings has appeared in it, and lets no part of that
/// stop string out. What could still become a stop string is held back: the longest suffix of the
/// text so far that is a proper prefix of some stop string, never more.
///
/// The string that is complete first wins; of several that end together, the longest. So the result
/// does not depend on how the text was cut into pieces. If text and stop strings are whole UTF-8
/// characters, so is everything that comes out.
///
/// Cost: O(number of stop strings) for each byte. One per answer; not thread-safe.
class StopMatcher {
 public:
  /// `stops` may be empty (then everything passes at once); empty strings in it are ignored.
  explicit StopMatcher(const std::vector<std::string>& stops);

  /// Takes the next piece; returns what may be sent now. After a match: nothing, for ever.
  std::string push(std::string_view text);

  /// True once a stop string has appeared.
  bool stopped() const { return !found_.empty(); }
  /// The stop string that has appeared; empty without one.
  const std::string& found() const { return found_; }

  /// The end of the answer: returns what was held back (nothing after a match).
  std::string flush();

 private:
  /// A Knuth-Morris-Pratt automaton.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;  ///< of text[0, i]: its longest proper prefix that is a suffix
    std::size_t matched = 0;          ///< the longest prefix of text that ends here; < text.size()
  };

  std::vector<Pattern> patterns_;
  std::string held_;  ///< its length is the largest `matched`
  std::string found_;
};

}  // namespace minisgl
