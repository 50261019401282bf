#include "tokenizer/pre_tokenizer.h"

#include <span>

#include "base/utf8.h"
#include "tokenizer/character_classes.h"

namespace minisgl {
namespace {

using Pieces = PreTokenizer::Pieces;

// Gathers the alternating matches and gaps of one piece under a SplitBehavior.
class Splitter {
 public:
  Splitter(SplitBehavior behavior, bool invert, std::vector<TextRange>& out)
      : behavior_(behavior), invert_(invert), out_(out) {}

  // Ranges must follow each other without holes.
  void add(TextRange range, bool is_match) {
    is_match = is_match != invert_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) push(range);
        break;
      case SplitBehavior::kIsolated: push(range); break;
      case SplitBehavior::kMergedWithPrevious:
        // A match joins what is before it, unless that is a match as well.
        join_if(is_match && !last_was_match_, range);
        break;
      case SplitBehavior::kMergedWithNext: join_if(last_was_match_ && !is_match, range); break;
      case SplitBehavior::kContiguous: join_if(is_match == last_was_match_, range); break;
    }
    last_was_match_ = is_match;
  }

 private:
  void push(TextRange range) {
    if (range.begin == range.end) return;
    out_.push_back(range);
    has_piece_ = true;
  }
  void join_if(bool join, TextRange range) {
    if (join && has_piece_) {
      out_.back().end = range.end;
    } else {
      push(range);
    }
  }

  SplitBehavior behavior_;
  bool invert_;
  std::vector<TextRange>& out_;
  bool last_was_match_ = false;
  bool has_piece_ = false;
};

void split_by(const Regex& pattern, std::string_view text, TextRange piece, Splitter& out) {
  const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
  std::size_t done = 0;
  std::size_t from = 0;
  while (from <= part.size()) {
    const auto match = pattern.find(part, from);
    if (!match) break;
    if (match->begin > done) out.add({piece.begin + done, piece.begin + match->begin}, false);
    out.add({piece.begin + match->begin, piece.begin + match->end}, true);
    done = from = match->end;
    if (match->begin != match->end) continue;
    // An empty match splits, and the search goes on one character later.
    from += from < part.size() ? decode_utf8(part, from).length : 1;
  }
  if (done < part.size()) out.add({piece.begin + done, piece.end}, false);
}

void apply(const PreTokenizer::Split& step, bool /*at_start*/, Pieces& state) {
  for (const TextRange piece : state.pieces) {
    Splitter out(step.behavior, step.invert, state.next);
    split_by(step.pattern, state.text, piece, out);
  }
  state.pieces.swap(state.next);
}

void apply(const PreTokenizer::Digits& step, bool /*at_start*/, Pieces& state) {
  const auto behavior = step.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  const CharacterClasses& classes = CharacterClasses::get();
  for (const TextRange piece : state.pieces) {
    Splitter out(behavior, /*invert=*/false, state.next);
    std::size_t done = piece.begin;
    for (std::size_t pos = piece.begin; pos < piece.end;) {
      const Utf8Char c = decode_utf8(state.text, pos);
      const std::size_t end = pos + c.length;
      if ((classes.of(c.code_point) & kNumber) != 0) {
        if (pos > done) out.add({done, pos}, false);
        out.add({pos, end}, true);
        done = end;
      }
      pos = end;
    }
    if (done < piece.end) out.add({done, piece.end}, false);
  }
  state.pieces.swap(state.next);
}

// Rewrites the pieces one by one: write(piece, out) appends the new text of a piece.
template <class Write>
void rewrite(Pieces& state, const Write& write) {
  std::string changed;
  changed.reserve(state.text.size() + state.pieces.size());
  for (TextRange& piece : state.pieces) {
    const std::size_t begin = changed.size();
    write(state.text.substr(piece.begin, piece.end - piece.begin), changed);
    piece = {begin, changed.size()};
  }
  state.buffer = std::move(changed);
  state.text = state.buffer;
}

void apply(const PreTokenizer::ByteLevel& step, bool /*at_start*/, Pieces& state) {
  if (step.add_prefix_space) {
    rewrite(state, [](std::string_view piece, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
  if (!step.use_regex) return;
  for (const TextRange piece : state.pieces) {
    Splitter out(SplitBehavior::kIsolated, /*invert=*/false, state.next);
    split_by(gpt2_pattern(), state.text, piece, out);
  }
  state.pieces.swap(state.next);
}

void apply(const PreTokenizer::Metaspace& step, bool at_start, Pieces& state) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  bool first = at_start;
  rewrite(state, [&](std::string_view piece, std::string& out) {
    const bool wanted =
        step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first);
    first = false;
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(step.replacement))
      out += step.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  if (!step.split) return;
  for (const TextRange piece : state.pieces) {
    Splitter out(SplitBehavior::kMergedWithNext, /*invert=*/false, state.next);
    std::size_t done = piece.begin;
    for (std::size_t at = state.text.find(step.replacement, done); at < piece.end;
         at = state.text.find(step.replacement, done)) {
      if (at > done) out.add({done, at}, false);
      done = at + step.replacement.size();
      out.add({at, done}, true);
    }
    if (done < piece.end) out.add({done, piece.end}, false);
  }
  state.pieces.swap(state.next);
}

// The splitter that does what all steps together do.
std::optional<WordSplitter> find_splitter(std::span<const PreTokenizer::Step> steps) {
  using ByteLevel = PreTokenizer::ByteLevel;
  if (steps.empty()) return std::nullopt;
  // A last step that only says that the vocabulary is spelled in bytes.
  const auto* bytes = std::get_if<ByteLevel>(&steps.back());
  if (bytes != nullptr && bytes->add_prefix_space) return std::nullopt;
  if (bytes != nullptr && !bytes->use_regex) steps = steps.first(steps.size() - 1);
  const bool gpt2 = bytes != nullptr && bytes->use_regex;
  if (steps.size() == 1) {
    if (gpt2) return WordSplitter(WordSplitter::Pattern::kGpt2);
    const auto* split = std::get_if<PreTokenizer::Split>(&steps[0]);
    if (split == nullptr) return std::nullopt;
    // Known patterns leave no gaps, so that removing these changes nothing.
    const bool isolates = split->behavior == SplitBehavior::kIsolated ||
                          (split->behavior == SplitBehavior::kRemoved && split->invert);
    if (!isolates) return std::nullopt;
    return WordSplitter::for_regex(split->pattern.pattern());
  }
  if (steps.size() != 2 || !gpt2) return std::nullopt;
  const auto* digits = std::get_if<PreTokenizer::Digits>(&steps[0]);
  if (digits == nullptr || !digits->individual) return std::nullopt;
  return WordSplitter(WordSplitter::Pattern::kGpt2Digits);
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<Step> steps)
    : steps_(std::move(steps)), splitter_(find_splitter(steps_)) {}

void PreTokenizer::run(std::string_view text, bool at_start, Pieces& out) const {
  out.text = text;
  out.pieces.clear();
  if (!text.empty()) out.pieces.push_back({0, text.size()});
  for (const Step& step : steps_) {
    out.next.clear();
    std::visit([&](const auto& s) { apply(s, at_start, out); }, step);
  }
}

const Regex& gpt2_pattern() {
  static const Regex pattern(regex_of(WordSplitter::Pattern::kGpt2));
  return pattern;
}

}  // namespace minisgl
