#include "grammar/xgrammar/pattern.h"

#include <grammar_functor.h>  // of xgrammar's sources: it has no public function for this

#include <exception>
#include <unordered_set>

namespace minisgl {
namespace {

/// With 5,000 a mask takes 0.1 s.
constexpr int kMaxStates = 2000;

}  // namespace

std::string json_pattern_error(const std::string& pattern) {
  for (const char c : pattern)
    if (c < ' ' || c > '~') return "it has control characters; write them as escapes";
  try {
    auto built = xgrammar::GrammarFSMBuilder::Regex(pattern, /*json_string=*/true);
    if (built.IsErr()) return std::string(std::move(built).UnwrapErr().what());
    const xgrammar::FSMWithStartEnd automaton = std::move(built).Unwrap();
    if (automaton.NumStates() > kMaxStates)
      return "it repeats too much: its automaton has " + std::to_string(automaton.NumStates()) +
             " states, and at most " + std::to_string(kMaxStates) +
             " are taken (maxLength is much cheaper)";
    std::unordered_set<int> states;
    automaton.GetReachableStates(&states);
    for (const int state : states)
      if (automaton.IsEndState(state)) return "";
    return "nothing matches it without characters that JSON strings escape (quotes, backslashes, "
           "control characters)";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace minisgl
