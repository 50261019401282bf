#include "tokenizer/character_classes.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "tokenizer/regex.h"

namespace minisgl {
namespace {

// Planes 4 to 13 have no characters, 15 and 16 are for private use: none is of any class.
bool may_have_a_class(char32_t c) { return c < 0x40000 || (c >= 0xE0000 && c < 0xF0000); }

struct Class {
  std::string_view pattern;
  std::uint8_t bit;
};
constexpr Class kClasses[] = {
    {R"(\p{L}+)", kLetter},
    {R"(\p{N}+)", kNumber},
    {R"(\s+)", kWhiteSpace},
    {R"([\r\n]+)", kLineBreak},
    {R"(\p{M}+)", kMark},
    {R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)", kUpperLike},
    {R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+)", kLowerLike},
    {R"([\p{P}\p{S}]+)", kPunctuation},
};

}  // namespace

const CharacterClasses& CharacterClasses::get() {
  static const CharacterClasses classes;
  return classes;
}

CharacterClasses::CharacterClasses() {
  std::vector<std::uint8_t> all(kEnd, 0);
  std::string text;  // every character in order, so that a class is a few hundred matches
  for (char32_t c = 0; c < kEnd; ++c)
    if (may_have_a_class(c) && !(c >= 0xD800 && c < 0xE000)) append_utf8(text, c);
  for (const Class& one : kClasses) {
    const Regex pattern(one.pattern);
    for (auto run = pattern.find(text, 0); run; run = pattern.find(text, run->end)) {
      for (std::size_t pos = run->begin; pos < run->end;) {
        const Utf8Char c = decode_utf8(text, pos);
        all[c.code_point] |= one.bit;
        pos += c.length;
      }
    }
  }
  for (std::size_t i = 0; i < page_of_.size(); ++i) {
    Page page{};
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(i * kPageSize), kPageSize, page.begin());
    const auto known = std::ranges::find(pages_, page);
    page_of_[i] = static_cast<std::uint16_t>(known - pages_.begin());
    if (known == pages_.end()) pages_.push_back(page);
  }
}

}  // namespace minisgl
