// The character classes that pre-tokenizer patterns are made of, as a table.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace minisgl {

/// Bits of CharacterClasses::of(). Names in \p{} are Unicode's general categories.
enum CharacterClass : std::uint8_t {
  kLetter = 1,        ///< \p{L}
  kNumber = 2,        ///< \p{N}
  kWhiteSpace = 4,    ///< \s
  kLineBreak = 8,     ///< CR, LF: white space as well
  kMark = 16,         ///< \p{M}
  kUpperLike = 32,    ///< [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 64,    ///< [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kPunctuation = 128  ///< [\p{P}\p{S}]
};

/// The classes of every code point, two memory accesses away. Immutable.
///
/// The table is read off PCRE2 when it is first needed (some milliseconds), so that hand-written
/// splitters and patterns always go by the same version of Unicode.
class CharacterClasses {
 public:
  static const CharacterClasses& get();

  /// Bits of CharacterClass; 0 beyond U+10FFFF.
  std::uint8_t of(char32_t c) const {
    return c < kEnd ? pages_[page_of_[c / kPageSize]][c % kPageSize] : std::uint8_t{0};
  }

 private:
  static constexpr char32_t kEnd = 0x110000;
  static constexpr std::size_t kPageSize = 256;
  using Page = std::array<std::uint8_t, kPageSize>;

  CharacterClasses();

  std::array<std::uint16_t, kEnd / kPageSize> page_of_{};
  std::vector<Page> pages_;  // each only once: most of them are all zero
};

}  // namespace minisgl
