// What tokenizers ask about single characters, and Unicode normalization.

#pragma once

#include <string>
#include <string_view>

namespace minisgl {

/// Unicode's White_Space property.
bool is_white_space(char32_t c);
/// What `\w` matches: letters, marks, decimal digits, letter-like numbers and symbols, connectors
/// and joiners (Unicode TR 18, Annex C).
bool is_word_character(char32_t c);

/// Canonical composition (NFC). `text` must be well-formed UTF-8.
std::string to_nfc(std::string_view text);
/// The other normalization forms.
std::string to_nfd(std::string_view text);
std::string to_nfkc(std::string_view text);
std::string to_nfkd(std::string_view text);
/// True only if `text` is in NFC; false means "perhaps not": it holds a character that composition
/// changes or may change. `text` must be well-formed UTF-8. Looks at each character once.
bool is_surely_nfc(std::string_view text);

}  // namespace minisgl
