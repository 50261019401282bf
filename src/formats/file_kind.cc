#include "formats/file_kind.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/utf8.h"

namespace minisgl {
namespace {

using std::string_view_literals::operator""sv;

struct Signature {
  std::string_view bytes;
  std::string_view kind;
};

constexpr Signature kSignatures[] = {
    {"version https://git-lfs"sv, "a Git LFS pointer and not the file itself (run: git lfs pull)"},
    {"GGUF"sv, "a GGUF file"},
    {"FUGG"sv, "a big-endian GGUF file"},
    {"lmgg"sv, "a GGML file (the format before GGUF)"},
    {"fmgg"sv, "a GGMF file (a format before GGUF)"},
    {"tjgg"sv, "a GGJT file (a format before GGUF)"},
    {"PK\x03\x04"sv, "a zip archive (as PyTorch checkpoints are)"},
    {"\x1F\x8B"sv, "a gzip file"},
    {"\xFD\x37zXZ\0"sv, "an xz file"},
    {"\x28\xB5\x2F\xFD"sv, "a zstd file"},
    {"BZh"sv, "a bzip2 file"},
    {"\x89HDF\r\n"sv, "an HDF5 file"},
    {"\x7F\x45LF"sv, "a program (ELF)"},
    {"%PDF"sv, "a PDF document"},
    {"<!DOCTYPE"sv, "an HTML page (a failed download?)"},
    {"<!doctype"sv, "an HTML page (a failed download?)"},
    {"<html"sv, "an HTML page (a failed download?)"},
    {"<?xml"sv, "an XML document (a failed download?)"},
};

bool is_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7F : c == '\n' || c == '\r' || c == '\t';
  });
}

/// A little-endian length that is plausible for a JSON header, then the header's brace.
bool is_safetensors(std::string_view head) {
  if (head.size() < 9 || head[8] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  return length < (std::uint64_t{1} << 32);
}

void append_hex(std::string& out, char c, const char* format) {
  char text[8];
  std::snprintf(text, sizeof(text), format, static_cast<unsigned char>(c));
  out += text;
}

/// Whether a terminal shows a character and goes on to the right: no control character, no line or
/// paragraph separator, no mark of direction.
bool is_harmless(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kHarmful[] = {
      {0x00, 0x1F},     {0x7F, 0x9F},     {0x061C, 0x061C}, {0x200E, 0x200F},
      {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};
  return std::none_of(std::begin(kHarmful), std::end(kHarmful),
                      [c](const auto& range) { return range.first <= c && c <= range.second; });
}

}  // namespace

std::string describe_content(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 512));
  if (head.empty()) return "an empty file";
  for (const Signature& known : kSignatures)
    if (head.starts_with(known.bytes)) return std::string(known.kind);
  if (is_safetensors(head)) return "a safetensors file";
  if (head.size() > 262 && head.substr(257, 5) == "ustar") return "a tar archive";
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == '\0'; }))
    return "a file of zeros (an unfinished download?)";
  if (is_text(head)) return head.front() == '{' ? "a JSON file" : "a text file";
  if (head.front() == '\x80' && head.size() > 1 && head[1] >= 2 && head[1] <= 5)
    return "a Python pickle (as old PyTorch checkpoints are)";
  std::string out = "a file that begins with the bytes";
  for (const char c : head.substr(0, 4)) append_hex(out, c, " %02x");
  return out;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxBytes = 80;
  std::string out = "'";
  std::size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text, pos);
    if (pos + c.length > kMaxBytes) break;
    const std::string_view bytes = text.substr(pos, c.length);
    if (c.status == Utf8Status::kOk && is_harmless(c.code_point)) {
      out += bytes;
    } else {
      for (const char byte : bytes) append_hex(out, byte, "\\x%02x");
    }
    pos += c.length;
  }
  if (pos < text.size()) out += "...";
  return out + "'";
}

}  // namespace minisgl
