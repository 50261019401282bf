#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace minisgl {
namespace {

constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

// What may follow a lead byte: how many bytes, and the range of the first of them, which is
// narrower after E0, ED, F0 and F4 (no overlong forms, surrogates or values above U+10FFFF).
struct Lead {
  int trailing;  // -1: no lead byte
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) return {.trailing = 0};
  if (byte < 0xC2) return {.trailing = -1};
  if (byte < 0xE0) return {.trailing = 1};
  if (byte < 0xF0) {
    if (byte == 0xE0) return {.trailing = 2, .low = 0xA0};
    if (byte == 0xED) return {.trailing = 2, .high = 0x9F};
    return {.trailing = 2};
  }
  if (byte == 0xF0) return {.trailing = 3, .low = 0x90};
  if (byte == 0xF4) return {.trailing = 3, .high = 0x8F};
  return {.trailing = byte < 0xF4 ? 3 : -1};
}

}  // namespace

std::size_t ascii_run(std::string_view text, std::size_t pos) {
  const std::size_t begin = pos;
  for (; pos + 8 <= text.size(); pos += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + pos, 8);
    if ((eight & 0x8080808080808080U) != 0) break;
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0x80) ++pos;
  return pos - begin;
}

Utf8Char decode_utf8(std::string_view text, std::size_t pos) {
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte_at(pos);
  const Lead lead = classify(first);
  if (lead.trailing == 0) return {.code_point = first, .length = 1};
  if (lead.trailing < 0) return {kReplacementCharacter, 1, Utf8Status::kIllFormed};

  char32_t code_point = first & (0x3FU >> lead.trailing);
  for (int i = 1; i <= lead.trailing; ++i) {
    const auto length = static_cast<std::uint8_t>(i);
    if (pos + length >= text.size()) return {kReplacementCharacter, length, Utf8Status::kTruncated};
    const unsigned char byte = byte_at(pos + length);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {kReplacementCharacter, length, Utf8Status::kIllFormed};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  return {.code_point = code_point, .length = static_cast<std::uint8_t>(lead.trailing + 1)};
}

bool is_valid_utf8(std::string_view text) {
  std::size_t pos = 0;
  while (true) {
    pos += ascii_run(text, pos);
    if (pos >= text.size()) return true;
    const Utf8Char c = decode_utf8(text, pos);
    if (c.status != Utf8Status::kOk) return false;
    pos += c.length;
  }
}

std::string replace_ill_formed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t pos = 0;
  while (pos < text.size()) {
    const std::size_t run = ascii_run(text, pos);
    out.append(text, pos, run);
    pos += run;
    if (pos >= text.size()) break;
    const Utf8Char c = decode_utf8(text, pos);
    out.append(c.status == Utf8Status::kOk ? text.substr(pos, c.length) : kReplacementBytes);
    pos += c.length;
  }
  return out;
}

std::size_t incomplete_utf8_tail(std::string_view text) {
  // A character that lacks a byte has at most 3 of them: only a lead among the last 3 can start it.
  const std::size_t limit = std::min<std::size_t>(3, text.size());
  for (std::size_t back = 1; back <= limit; ++back) {
    const std::size_t pos = text.size() - back;
    const auto byte = static_cast<unsigned char>(text[pos]);
    if (byte >= 0x80 && byte < 0xC0) continue;
    const Utf8Char c = decode_utf8(text, pos);
    return c.status == Utf8Status::kTruncated ? back : 0;
  }
  return 0;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if ((code_point >= 0xD800 && code_point < 0xE000) || code_point > 0x10FFFF) {
    out.append(kReplacementBytes);
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace minisgl
