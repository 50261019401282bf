// UTF-8: decoding one character at a time, and repairing what is not well-formed.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl {

enum class Utf8Status : std::uint8_t {
  kOk,
  kIllFormed,  ///< bytes that no further byte can make a character
  kTruncated,  ///< the text ends inside a character that is well-formed so far
};

/// One step through UTF-8 text.
struct Utf8Char {
  char32_t code_point = 0;  ///< U+FFFD unless status is kOk
  std::uint8_t length = 0;  ///< bytes of the character or of the maximal ill-formed subpart, 1 to 4
  Utf8Status status = Utf8Status::kOk;
};

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

/// Decodes at byte `pos` < text.size(). An ill-formed sequence has the length of its maximal
/// subpart. Source: Unicode 15, section 3.9, table 3-7 and "U+FFFD substitution of maximal
/// subparts"; Python's and Rust's lossy decoders and WHATWG do the same.
Utf8Char decode_utf8(std::string_view text, std::size_t pos);

/// How many ASCII characters follow each other from byte `pos` <= text.size().
std::size_t ascii_run(std::string_view text, std::size_t pos);

/// Whether all of `text` is well-formed UTF-8 (surrogates and code points above U+10FFFF are not).
bool is_valid_utf8(std::string_view text);

/// `text` with one U+FFFD for each maximal ill-formed subpart, a truncated end included.
std::string replace_ill_formed(std::string_view text);

/// Bytes at the end of `text` that begin a character which more bytes could complete: 0 to 3.
std::size_t incomplete_utf8_tail(std::string_view text);

/// Appends a Unicode scalar value; U+FFFD in place of anything else.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace minisgl
