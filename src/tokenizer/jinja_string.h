// Strings of templates: immutable text that remembers which of its bytes a user wrote.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/marked_text.h"

namespace minisgl::jinja {

using Span = MarkedText::Span;

/// UTF-8 text with marks: the byte ranges that came from a user. Immutable, so it is shared freely.
/// A text without marks costs no more than a std::string.
///
/// Invariants
///  1. marks() is ascending, disjoint, not touching, not empty ranges, inside the text.
///  2. length() counts code points; ill-formed bytes belong to the code point before them.
class Str {
 public:
  Str() = default;
  /// All of `text` is marked, or nothing of it. `safe` text is not escaped again (Markup).
  explicit Str(std::string text, bool marked = false, bool safe = false);
  Str(std::string text, std::vector<Span> marks, bool safe);

  const std::string& text() const { return text_; }
  const std::vector<Span>& marks() const { return marks_; }
  bool safe() const { return safe_; }
  bool empty() const { return text_.empty(); }
  /// Bytes.
  std::size_t size() const { return text_.size(); }
  /// Code points.
  std::size_t length() const { return length_; }

  /// Byte offset of code point `index`; size() when index >= length(). O(1) for ASCII.
  std::size_t offset_of(std::size_t index) const;
  /// Number of code points before byte `offset`.
  std::size_t index_of(std::size_t offset) const;
  /// The bytes [begin, end) with their marks.
  Str slice(std::size_t begin, std::size_t end) const;
  /// The same text and marks, with another `safe`.
  Str with_safe(bool safe) const { return Str(text_, marks_, safe); }

 private:
  std::string text_;
  std::vector<Span> marks_;
  std::size_t length_ = 0;
  bool safe_ = false;
};

using StrRef = std::shared_ptr<const Str>;

/// Joins pieces; marks travel along, and touching marks become one.
class StrBuilder {
 public:
  void append(std::string_view text, bool marked = false);
  void append(const Str& s);
  /// Bytes [begin, end) of `s`.
  void append(const Str& s, std::size_t begin, std::size_t end);
  /// `count` copies of the ASCII character `c`, unmarked.
  void pad(std::size_t count, char c = ' ') { text_.append(count, c); }

  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }
  Str build(bool safe = false) { return Str(std::move(text_), std::move(marks_), safe); }
  MarkedText build_marked() { return {std::move(text_), std::move(marks_)}; }

 private:
  void mark(std::size_t begin, std::size_t end);

  std::string text_;
  std::vector<Span> marks_;
};

/// Answers whether a byte of a Str is marked; offsets asked for must not decrease.
class MarkCursor {
 public:
  explicit MarkCursor(const Str& s) : marks_(s.marks()) {}
  bool at(std::size_t offset) {
    while (next_ < marks_.size() && marks_[next_].end <= offset) ++next_;
    return next_ < marks_.size() && marks_[next_].begin <= offset;
  }

 private:
  const std::vector<Span>& marks_;
  std::size_t next_ = 0;
};

/// Code points of `text` (non-continuation bytes).
std::size_t count_code_points(std::string_view text);

/// One character of a text: its code point and where it lies.
struct Char {
  std::uint32_t code = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The character that starts at `offset` (< text.size()). An ill-formed sequence is one character
/// U+FFFD that reaches to the next lead byte.
Char char_at(std::string_view text, std::size_t offset);

/// Calls f(Char) for every character.
template <class F>
void for_each_char(std::string_view text, F f) {
  for (std::size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    f(c);
    i = c.end;
  }
}

/// UTF-8 of a code point (U+FFFD for surrogates and what is out of range).
std::string encode_utf8(std::uint32_t code);

}  // namespace minisgl::jinja
