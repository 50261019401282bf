// Splits a text into the words that BPE works on.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/word_splitter.h"

namespace minisgl {

/// A part of a text, in bytes.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

/// What becomes of the matches of a Split step.
enum class SplitBehavior {
  kRemoved,             ///< dropped
  kIsolated,            ///< a piece each
  kMergedWithPrevious,  ///< the end of the piece before
  kMergedWithNext,      ///< the beginning of the piece after
  kContiguous,          ///< neighbouring matches are one piece
};

/// Steps in order; each splits the pieces of the one before. Immutable: any thread may use it.
/// Source: the pre-tokenizers of Hugging Face tokenizers, by their names in tokenizer.json.
class PreTokenizer {
 public:
  struct Split {
    Regex pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;  ///< what does not match counts as match
  };
  struct Digits {
    bool individual = false;  ///< each digit is a piece; else each run of them
  };
  /// The mapping of bytes is not done here: pieces stay UTF-8.
  struct ByteLevel {
    bool add_prefix_space = false;  ///< in front of each piece that does not begin with one
    bool use_regex = true;          ///< split as GPT-2 does
  };
  /// Spaces become `replacement`, and one is put in front.
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };
    std::string replacement;
    Prepend prepend = Prepend::kAlways;  ///< kFirst: only at the start of the whole text
    bool split = true;                   ///< pieces begin at each `replacement`
  };
  using Step = std::variant<Split, Digits, ByteLevel, Metaspace>;

  /// The result, and buffers that are reused. `text` is the text that `pieces` are ranges of: the
  /// input, or `buffer` after a step that changed it.
  struct Pieces {
    std::string_view text;
    std::vector<TextRange> pieces;  ///< ascending, disjoint, not empty

    std::string buffer;
    std::vector<TextRange> next;
  };

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<Step> steps);

  /// Splits `text`, well-formed UTF-8, which must outlive the use of `out`. `at_start`: it is the
  /// beginning of the whole text.
  void run(std::string_view text, bool at_start, Pieces& out) const;

  /// What gives the pieces of run() sooner; nullopt when the steps are not known by heart.
  const std::optional<WordSplitter>& splitter() const { return splitter_; }

 private:
  std::vector<Step> steps_;
  std::optional<WordSplitter> splitter_;
};

/// The pattern of GPT-2, which ByteLevel uses. Source: GPT-2's encoder.py.
const Regex& gpt2_pattern();

}  // namespace minisgl
