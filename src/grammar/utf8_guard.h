// Keeps answers well-formed UTF-8 where tokens end inside a character.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace minisgl {

/// Grammars speak of characters, but xgrammar lets any continuation byte follow a first byte. After
/// four of them some would make an overlong form, a surrogate or a character beyond U+10FFFF
/// (Unicode 15, table 3-7), which are no characters: the text would get U+FFFD and the answer
/// another length.
///
/// Filled while a vocabulary is read; afterwards any thread may use it.
class Utf8Guard {
 public:
  /// Tokens that hold such a pair of bytes must never be drawn.
  static bool is_ill_formed(std::string_view bytes);

  /// `bytes` of a token that may be drawn.
  void add(TokenId id, std::string_view bytes);

  /// Clears the bits of tokens that must not follow `last`, the last byte of the answer so far.
  /// Only where some must not is `mask` touched: mostly this costs nothing.
  void apply(unsigned char last, std::span<std::int32_t> mask) const;
  /// Whether apply() would touch a mask.
  static bool applies(unsigned char last);

 private:
  std::array<std::vector<TokenId>, 4> banned_;  // by kPairs
};

}  // namespace minisgl
