#include "tokenizer/jinja_string.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace minisgl::jinja {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::size_t count_code_points(std::string_view text) {
  // Eight bytes at a time: every string of a rendering is counted when it is made.
  std::size_t continuations = 0;
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + i, sizeof word);
    // Bit 7 set and bit 6 clear; the product adds the eight bits in its top byte.
    constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
    continuations += (word >> 7 & ~(word >> 6) & kOnes) * kOnes >> 56;
  }
  for (; i < text.size(); ++i) continuations += is_continuation(text[i]) ? 1 : 0;
  return text.size() - continuations;
}

Str::Str(std::string text, bool marked, bool safe)
    : text_(std::move(text)), length_(count_code_points(text_)), safe_(safe) {
  if (marked && !text_.empty()) marks_.push_back({0, text_.size()});
}

Str::Str(std::string text, std::vector<Span> marks, bool safe)
    : text_(std::move(text)),
      marks_(std::move(marks)),
      length_(count_code_points(text_)),
      safe_(safe) {}

std::size_t Str::offset_of(std::size_t index) const {
  if (index >= length_) return text_.size();
  if (length_ == text_.size() || index == 0) return index;
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (is_continuation(text_[i])) continue;
    if (seen++ == index) return i;
  }
  return text_.size();
}

std::size_t Str::index_of(std::size_t offset) const {
  if (length_ == text_.size()) return offset;
  return count_code_points(std::string_view(text_).substr(0, offset));
}

Str Str::slice(std::size_t begin, std::size_t end) const {
  StrBuilder out;
  out.append(*this, begin, end);
  return out.build(safe_);
}

void StrBuilder::mark(std::size_t begin, std::size_t end) {
  if (!marks_.empty() && marks_.back().end == begin) {
    marks_.back().end = end;
  } else {
    marks_.push_back({begin, end});
  }
}

void StrBuilder::append(std::string_view text, bool marked) {
  const std::size_t begin = text_.size();
  text_.append(text);
  if (marked && !text.empty()) mark(begin, text_.size());
}

void StrBuilder::append(const Str& s) { append(s, 0, s.size()); }

void StrBuilder::append(const Str& s, std::size_t begin, std::size_t end) {
  const std::size_t base = text_.size();
  text_.append(s.text(), begin, end - begin);
  for (const Span& span : s.marks()) {
    const std::size_t from = std::max(span.begin, begin);
    const std::size_t to = std::min(span.end, end);
    if (from < to) mark(base + from - begin, base + to - begin);
  }
}

Char char_at(std::string_view text, std::size_t offset) {
  std::size_t end = offset + 1;
  while (end < text.size() && is_continuation(text[end])) ++end;
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[offset + i]));
  };
  const std::uint32_t lead = byte(0);
  const std::size_t n = end - offset;
  std::uint32_t code = 0xFFFD;
  if (lead < 0x80 && n == 1) {
    code = lead;
  } else if (lead >= 0xC2 && lead < 0xE0 && n == 2) {
    code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  } else if (lead >= 0xE0 && lead < 0xF0 && n == 3) {
    code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  } else if (lead >= 0xF0 && lead < 0xF5 && n == 4) {
    code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  return {code, offset, end};
}

std::string encode_utf8(std::uint32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  std::string out;
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
  return out;
}

}  // namespace minisgl::jinja
