// Python's methods of str, on marked strings: what they return keeps the marks of what it came from

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_string.h"

namespace minisgl::jinja {

// Properties of characters, as Python's str has them (Unicode general categories).
bool is_space(std::uint32_t code);
bool is_printable(std::uint32_t code);
bool is_letter(std::uint32_t code);
bool is_decimal(std::uint32_t code);  ///< category Nd
bool is_numeric(std::uint32_t code);  ///< categories Nd, Nl, No
bool is_upper(std::uint32_t code);
bool is_lower(std::uint32_t code);
/// May be part of a name: letters, marks, numbers, connecting punctuation.
bool is_word(std::uint32_t code);

enum class Side { kBoth, kLeft, kRight };

/// Without the characters of `chars` (blanks by default) at its ends.
Str strip(const Str& s, Side side, std::optional<std::string_view> chars = std::nullopt);

Str upper(const Str& s);
Str lower(const Str& s);
Str casefold(const Str& s);
Str swapcase(const Str& s);
Str capitalize(const Str& s);
/// str.title(): a capital after everything that is not a letter.
Str title(const Str& s);
/// jinja2's title filter: a capital after blanks, - ( { [ <.
Str title_words(const Str& s);

/// At most `limit` replacements (all when negative). An empty `old` matches between characters.
Str replace(const Str& s, std::string_view old, const Str& with, std::int64_t limit = -1);

/// At blanks. From the right when `from_right`; the pieces are in order of the text all the same.
std::vector<Str> split_blanks(const Str& s, std::int64_t limit, bool from_right);
/// At a separator, which must not be empty.
std::vector<Str> split(const Str& s, std::string_view separator, std::int64_t limit,
                       bool from_right);
std::vector<Str> split_lines(const Str& s, bool keep_ends);

/// In a field of `width` code points; `left` and `right` are what is added.
Str padded(const Str& s, std::size_t left, std::size_t right, const Str& fill);
/// str.center().
Str center(const Str& s, std::int64_t width, const Str& fill);
Str reversed(const Str& s);
Str join(const Str& separator, const std::vector<Str>& pieces);
Str concat(const Str& a, const Str& b);
/// Tabs become blanks up to the next multiple of `tab_size` columns.
Str expand_tabs(const Str& s, std::int64_t tab_size);

/// &, <, >, ' and " as HTML entities.
Str escape_html(const Str& s);
/// Without tags and comments, blanks collapsed, entities resolved.
Str strip_tags(const Str& s);

/// Python's s[start:stop:step] by code points, already clipped: first index, number, step.
Str pick(const Str& s, std::int64_t start, std::int64_t count, std::int64_t step);

/// What a slice takes of a sequence.
struct SliceRange {
  std::int64_t start = 0;  ///< index of the first item
  std::int64_t stop = 0;   ///< where it ends, exclusive; -1 when it goes down to the first item
  std::int64_t count = 0;  ///< number of items
};
/// Python's slice.indices(): the bounds of [start:stop:step] clipped to `length`.
SliceRange clip_slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                      std::int64_t step, std::int64_t length);

}  // namespace minisgl::jinja
