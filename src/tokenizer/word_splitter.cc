#include "tokenizer/word_splitter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace minisgl {
namespace {

using Pattern = WordSplitter::Pattern;

// clang-format off: one alternative a line
constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d)"
    R"(| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)"
    R"(|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// clang-format on

constexpr std::pair<Pattern, std::string_view> kRegexes[] = {
    {Pattern::kGpt2, kGpt2Regex},     {Pattern::kLlama3, kLlama3Regex},
    {Pattern::kQwen2, kQwen2Regex},   {Pattern::kQwen35, kQwen35Regex},
    {Pattern::kTekken, kTekkenRegex}, {Pattern::kO200k, kO200kRegex},
};

// What the patterns are made of. Positions are pointers into the text; `end_` is its end.
class Scanner {
 public:
  Scanner(const CharacterClasses& classes, const char* end) : classes_(classes), end_(end) {}

  struct Char {
    std::uint8_t classes = 0;
    std::uint8_t length = 0;
    bool is(std::uint8_t bits) const { return (classes & bits) != 0; }
  };

  bool at_end(const char* p) const { return p >= end_; }
  // The character at p < end; well-formed, so that its first byte tells its length.
  Char at(const char* p) const {
    const auto b = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
    if (b(0) < 0x80) return {classes_.of(b(0)), 1};
    if (b(0) < 0xE0) return {classes_.of((b(0) & 0x1F) << 6 | (b(1) & 0x3F)), 2};
    if (b(0) < 0xF0)
      return {classes_.of((b(0) & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F)), 3};
    return {
        classes_.of((b(0) & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F)),
        4};
  }

  // The end of the run of characters from p that are of one of these classes ...
  const char* run_of(std::uint8_t bits, const char* p) const {
    while (p < end_) {
      const Char c = at(p);
      if (!c.is(bits)) break;
      p += c.length;
    }
    return p;
  }
  // ... or of none of them.
  const char* run_without(std::uint8_t bits, const char* p) const {
    while (p < end_) {
      const Char c = at(p);
      if (c.is(bits)) break;
      p += c.length;
    }
    return p;
  }
  const char* up_to(int count, std::uint8_t bits, const char* p) const {
    for (; count > 0 && p < end_; --count) {
      const Char c = at(p);
      if (!c.is(bits)) break;
      p += c.length;
    }
    return p;
  }
  const char* line_breaks(const char* p, bool and_slashes) const {
    while (p < end_ && (*p == '\r' || *p == '\n' || (and_slashes && *p == '/'))) ++p;
    return p;
  }

  // The end of 's, 't, 're, 've, 'm, 'll or 'd at p; p when there is none. Only lower case, or any:
  // then U+017F is an s as well.
  const char* contraction(const char* p, bool any_case) const {
    if (end_ - p < 2 || *p != '\'') return p;
    const auto lower = [any_case](char c) {
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = lower(p[1]);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
    if (end_ - p < 3) return p;
    const char second = lower(p[2]);
    if ((first == 'l' && second == 'l') || (second == 'e' && (first == 'r' || first == 'v')))
      return p + 3;
    return any_case && p[1] == '\xC5' && p[2] == '\xBF' ? p + 3 : p;
  }

  // \s+(?!\S)|\s+ from p, a white space: up to the last one, which belongs to the word behind it,
  // and all when there is no such word. `ends_text`: classes before which a text ends.
  const char* white_space(const char* p, std::uint8_t ends_text = 0) const {
    const char* last = p;
    const char* q = p + at(p).length;
    while (q < end_) {
      const Char c = at(q);
      if (!c.is(kWhiteSpace)) return last == p || c.is(ends_text) ? q : last;
      last = q;
      q += c.length;
    }
    return q;
  }
  // \s*[\r\n]+|\s+(?!\S)|\s+ from p: up to the last line break if there is one.
  const char* lines_or_white_space(const char* p) const {
    const char* last = p;
    const char* after_break = nullptr;
    const char* q = p;
    while (q < end_) {
      const Char c = at(q);
      if (!c.is(kWhiteSpace)) break;
      last = q;
      q += c.length;
      if (c.is(kLineBreak)) after_break = q;
    }
    if (after_break != nullptr) return after_break;
    return q == end_ || last == p ? q : last;
  }

 private:
  const CharacterClasses& classes_;
  const char* end_;
};

// Each of the following: from p, where a word begins, to its end.

constexpr std::uint8_t kWordOrSpace = kLetter | kNumber | kWhiteSpace;

template <bool kIsolateDigits>
struct Gpt2 {
  static const char* word(const Scanner& text, const char* p) {
    const Scanner::Char first = text.at(p);
    const char* after = p + first.length;
    if (first.is(kLetter)) return text.run_of(kLetter, after);
    if (first.is(kNumber)) return kIsolateDigits ? after : text.run_of(kNumber, after);
    if (!first.is(kWhiteSpace)) {
      const char* end = text.contraction(p, /*any_case=*/false);
      return end != p ? end : text.run_without(kWordOrSpace, after);
    }
    if (*p == ' ' && !text.at_end(after)) {
      const Scanner::Char second = text.at(after);
      const char* next = after + second.length;
      if (second.is(kLetter)) return text.run_of(kLetter, next);
      if (second.is(kNumber) && !kIsolateDigits) return text.run_of(kNumber, next);
      if (!second.is(kWordOrSpace)) return text.run_without(kWordOrSpace, next);
    }
    return text.white_space(p, kIsolateDigits ? kNumber : 0);
  }
};

template <int kMaxDigits, bool kMarksAreLetters>
struct Llama3 {
  static const char* word(const Scanner& text, const char* p) {
    constexpr std::uint8_t kLetters = kMarksAreLetters ? kLetter | kMark : kLetter;
    constexpr std::uint8_t kNotOther = kLetters | kNumber | kWhiteSpace;
    const Scanner::Char first = text.at(p);
    const char* after = p + first.length;
    if (first.is(kLetter)) return text.run_of(kLetters, after);
    if (first.is(kNumber)) return text.up_to(kMaxDigits - 1, kNumber, after);
    if (const char* end = text.contraction(p, /*any_case=*/true); end != p) return end;
    if (!first.is(kLineBreak) && !text.at_end(after)) {
      const Scanner::Char second = text.at(after);
      const char* next = after + second.length;
      if (second.is(kLetters)) return text.run_of(kLetters, next);
      if (*p == ' ' && !second.is(kNotOther))
        return text.line_breaks(text.run_without(kNotOther, next), /*and_slashes=*/false);
    }
    if (first.is(kWhiteSpace)) return text.lines_or_white_space(p);
    if (kMarksAreLetters && first.is(kMark))
      return after;  // alone: marks after it were taken above
    return text.line_breaks(text.run_without(kNotOther, after), /*and_slashes=*/false);
  }
};

template <int kMaxDigits, bool kContractions>
struct O200k {
  // Upper case, then lower case: U*W+ from p. A letter without case is both, so U* gives back what
  // W+ needs: the end is behind the last such letter. nullptr: no match.
  static const char* lower_word(const Scanner& text, const char* p) {
    const char* last_both = nullptr;
    while (!text.at_end(p)) {
      const Scanner::Char c = text.at(p);
      if (!c.is(kUpperLike)) break;
      p += c.length;
      if (c.is(kLowerLike)) last_both = p;
    }
    const char* end = text.run_of(kLowerLike, p);
    return end != p ? end : last_both;
  }
  // U+W*
  static const char* upper_word(const Scanner& text, const char* p) {
    const char* end = text.run_of(kUpperLike, p);
    return end != p ? text.run_of(kLowerLike, end) : nullptr;
  }

  static const char* word(const Scanner& text, const char* p) {
    const Scanner::Char first = text.at(p);
    const char* after = p + first.length;
    if (first.is(kNumber)) return text.up_to(kMaxDigits - 1, kNumber, after);
    // With one character before it, which is neither a line break nor a letter; else without.
    const bool may_lead = !first.is(kLetter | kLineBreak);
    for (const auto& part : {lower_word, upper_word}) {
      const char* end = may_lead ? part(text, after) : nullptr;
      if (end == nullptr) end = part(text, p);
      if (end != nullptr) return kContractions ? text.contraction(end, /*any_case=*/true) : end;
    }
    if (*p == ' ' && !text.at_end(after) && !text.at(after).is(kWordOrSpace))
      return text.line_breaks(text.run_without(kWordOrSpace, after), /*and_slashes=*/true);
    if (first.is(kWhiteSpace)) return text.lines_or_white_space(p);
    return text.line_breaks(text.run_without(kWordOrSpace, after), /*and_slashes=*/true);
  }
};

template <class Words>
std::size_t split(const CharacterClasses& classes, std::string_view text, std::size_t begin,
                  std::span<std::uint32_t> ends) {
  const Scanner scanner(classes, text.data() + text.size());
  const char* p = text.data() + begin;
  std::size_t count = 0;
  while (count < ends.size() && !scanner.at_end(p)) {
    p = Words::word(scanner, p);
    ends[count++] = static_cast<std::uint32_t>(p - text.data());
  }
  return count;
}

}  // namespace

std::optional<WordSplitter> WordSplitter::for_regex(std::string_view regex) {
  for (const auto& [pattern, known] : kRegexes)
    if (regex == known) return WordSplitter(pattern);
  return std::nullopt;
}

std::string_view regex_of(WordSplitter::Pattern pattern) {
  const auto* found =
      std::ranges::find(kRegexes, pattern, [](const auto& row) { return row.first; });
  check(found != std::end(kRegexes), "this pattern is not one regular expression");
  return found->second;
}

std::size_t WordSplitter::run(std::string_view text, std::size_t begin,
                              std::span<std::uint32_t> ends) const {
  switch (pattern_) {
    case Pattern::kGpt2: return split<Gpt2<false>>(*classes_, text, begin, ends);
    case Pattern::kGpt2Digits: return split<Gpt2<true>>(*classes_, text, begin, ends);
    case Pattern::kLlama3: return split<Llama3<3, false>>(*classes_, text, begin, ends);
    case Pattern::kQwen2: return split<Llama3<1, false>>(*classes_, text, begin, ends);
    case Pattern::kQwen35: return split<Llama3<1, true>>(*classes_, text, begin, ends);
    case Pattern::kTekken: return split<O200k<1, false>>(*classes_, text, begin, ends);
    case Pattern::kO200k: return split<O200k<3, true>>(*classes_, text, begin, ends);
  }
  return 0;
}

}  // namespace minisgl
