#include "tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace minisgl {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr std::size_t kNumCharacters = 0x100 + 68;

constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kNumCharacters> byte{};  // -1: not of the alphabet

  constexpr Tables() {
    byte.fill(-1);
    char32_t stand_in = kFirstStandIn;
    for (int b = 0; b < 256; ++b) {
      const char32_t c = is_printable(b) ? static_cast<char32_t>(b) : stand_in++;
      character[static_cast<std::size_t>(b)] = c;
      byte[c] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Tables kTables;

}  // namespace

char32_t byte_to_character(unsigned char byte) { return kTables.character[byte]; }

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) append_utf8(out, byte_to_character(static_cast<unsigned char>(c)));
  return out;
}

bool append_byte_level(std::string_view text, std::string& out) {
  const std::size_t old_size = out.size();
  std::size_t pos = 0;
  while (pos < text.size()) {
    // All of the alphabet has one or two bytes in UTF-8.
    const auto first = static_cast<unsigned char>(text[pos]);
    char32_t c = first;
    if (first < 0x80) {
      ++pos;
    } else {
      const Utf8Char decoded = decode_utf8(text, pos);
      c = decoded.code_point;
      pos += decoded.length;
    }
    if (c >= kNumCharacters || kTables.byte[c] < 0) {
      out.resize(old_size);
      return false;
    }
    out.push_back(static_cast<char>(kTables.byte[c]));
  }
  return true;
}

}  // namespace minisgl
