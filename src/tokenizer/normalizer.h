// What happens to a text before it is split.

#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/regex.h"

namespace minisgl {

/// Steps in order. Immutable once made: any thread may use it.
class Normalizer {
 public:
  /// Unicode canonical composition.
  struct Nfc {};
  /// The other normalization forms of Unicode.
  struct Form {
    enum class Kind { kNfd, kNfkc, kNfkd };
    Kind kind;
  };
  /// Puts `text` in front of a text that is not empty.
  struct Prepend {
    std::string text;
  };
  /// Replaces each occurrence of `pattern` (not empty), from left to right.
  struct Replace {
    std::string pattern;
    std::string content;
  };
  /// Replaces each match of `pattern` that is not empty.
  struct ReplaceMatches {
    Regex pattern;
    std::string content;
  };
  using Step = std::variant<Nfc, Form, Prepend, Replace, ReplaceMatches>;

  Normalizer() = default;
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  bool is_identity() const { return steps_.empty(); }
  /// `text`, well-formed UTF-8, after all steps. The view is of `text` itself when nothing changed,
  /// else of `buffer`. Throws Error when steps make it more than 16 times as long (and 1 KiB).
  std::string_view apply(std::string_view text, std::string& buffer) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace minisgl
