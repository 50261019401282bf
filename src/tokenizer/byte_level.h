// The alphabet of byte-level vocabularies: each byte is written as one printable character.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minisgl {

/// The character that stands for `byte`: itself for printable Latin-1 (! to ~, U+00A1 to U+00AC,
/// U+00AE to U+00FF), and U+0100, U+0101, ... for the other 68 bytes in order.
/// Source: bytes_to_unicode() of GPT-2's encoder.py.
char32_t byte_to_character(unsigned char byte);

/// `bytes` in that alphabet, as UTF-8.
std::string to_byte_level(std::string_view bytes);

/// Appends the bytes that `text` stands for and returns true; false, with `out` as it was, if some
/// character of `text` is not of that alphabet or not UTF-8.
bool append_byte_level(std::string_view text, std::string& out);

}  // namespace minisgl
