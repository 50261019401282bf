// Which tokens an answer may go on with: the hook of constrained output.

#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace minisgl {

/// Follows one answer and says before each of its tokens which ones are allowed.
///
/// How it is called, all on the scheduler's thread: fill(), then accept() of the token that was
/// drawn, then fill() again, and so on until the answer ends. The forward pass of a step is
/// launched before the tokens of the step before it are known. When a row of the new step has a
/// constraint, its sampling is not launched with it: the scheduler collects the previous step
/// (accept()), then calls fill() while the forward pass runs, and then launches the sampling. So a
/// fill() that is shorter than a forward pass costs no time. fill() of one step's rows is called
/// one after the other. It needs no thread safety of its own; what several constraints share does
/// if it is not const.
///
/// A constraint belongs to one request (NewRequest::constraint) and is destroyed with it, on the
/// scheduler's thread. accept() may have one last call for a token that the answer does not keep.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Writes which ids may come next: bit i % 32 of word i / 32 is set if id i may. `mask` has
  /// ceil(vocab_size / 32) words, vocab_size being the model's (ExecutorLimits); bits beyond the
  /// tokenizer's vocabulary must be 0. False: every id may come, and `mask` is not read. At least
  /// one bit must be set, else the request ends with an error.
  virtual bool fill(std::span<std::int32_t> mask) = 0;

  /// The answer has gained `token`, which may be an end-of-sequence token. False: it is not one
  /// that may come here; the request ends with an error.
  virtual bool accept(TokenId token) = 0;

  /// Nothing may follow: the answer ends here with FinishReason::kStop, without an end-of-sequence
  /// token. Asked after accept().
  virtual bool finished() const { return false; }
};

}  // namespace minisgl
