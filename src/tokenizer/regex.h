// Regular expressions of pre-tokenizers.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace minisgl {

/// A compiled pattern over UTF-8 text. Immutable: any thread may use it.
class Regex {
 public:
  /// `pattern` is in the dialect that tokenizer.json files use (Oniguruma's Ruby syntax), as far
  /// as PCRE2 has the same meaning: `\s` and `\S` follow Unicode's White_Space, `^` and `$` match
  /// at lines. Throws Error quoting the pattern when it is ill-formed or needs what PCRE2 lacks
  /// (`&&` and nested sets in a character class, `\h`, `\H`, `{n,m}+`).
  explicit Regex(std::string_view pattern);
  /// Matches exactly `text`.
  static Regex literal(std::string_view text);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// The first match that begins at or after byte `from`; it may be empty. `text` must be
  /// well-formed UTF-8 and is all that look-around sees. Does not allocate after a thread's first
  /// call. Throws Error when the match takes more steps than PCRE2 allows.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  struct Raw {};
  Regex(Raw, std::string pattern, const std::string& translated);

  std::string pattern_;
  std::shared_ptr<const Code> code_;  // immutable, so that copies of a Regex may share it
};

}  // namespace minisgl
