// Formats of strings ("format" of JSON schemas) as regular expressions.

#pragma once

#include <string>
#include <string_view>

namespace minisgl {

/// A pattern all of whose matches have that format; "" for a format that is not known. Patterns are
/// not anchored: the whole string has to match. They leave out what is rare or long, so that an
/// answer cannot go on for ever: a date is of the years 1000 to 9999 and never 29 February.
/// Source: RFC 3339 (dates), 5321 (e-mail), 1123 (hosts), 4291 (IPv6), 9562 (UUID), 3986 (URI).
std::string pattern_of_format(std::string_view format);

/// All known formats, for messages: "date, date-time, ...".
std::string known_formats();

}  // namespace minisgl
