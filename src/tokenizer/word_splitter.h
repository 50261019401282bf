// The patterns that most byte-level tokenizers split text with, written out by hand: some ten times
// as fast as a regular expression.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tokenizer/character_classes.h"

namespace minisgl {

/// Splits a text exactly as one known pattern does: words follow each other without holes.
/// Immutable: any thread may use it. Oracle: PCRE2 with the pattern itself.
class WordSplitter {
 public:
  enum class Pattern : std::uint8_t {
    kGpt2,        ///< GPT-2 (SmolLM, Phi-2, OLMo, ...)
    kGpt2Digits,  ///< the same after a step that isolates each digit (SmolLM2, StarCoder, ...)
    kLlama3,      ///< Llama 3 and cl100k: numbers in groups of three
    kQwen2,       ///< Qwen 2, 2.5 and 3: numbers digit by digit
    kQwen35,      ///< Qwen 3.5: as Qwen 2, but marks are letters
    kTekken,      ///< Mistral's: words change at lower to upper case, numbers digit by digit
    kO200k,       ///< GPT-4o, Llama 4, Phi-4-mini: the same with contractions, groups of three
  };

  explicit WordSplitter(Pattern pattern) : pattern_(pattern), classes_(&CharacterClasses::get()) {}
  /// The splitter that does what the regular expression does; nullopt for unknown ones.
  static std::optional<WordSplitter> for_regex(std::string_view regex);

  Pattern pattern() const { return pattern_; }

  /// Writes where the words of `text` end, one after the other from byte `begin` (the end of a
  /// word), until `ends` is full or the text ends. Returns how many. `text` is well-formed UTF-8
  /// and below 4 GiB.
  std::size_t run(std::string_view text, std::size_t begin, std::span<std::uint32_t> ends) const;

 private:
  Pattern pattern_;
  const CharacterClasses* classes_;
};

/// Regular expressions of the patterns, in the spelling that tokenizer.json files have. kGpt2Digits
/// is two steps and has none of its own.
std::string_view regex_of(WordSplitter::Pattern pattern);

}  // namespace minisgl
