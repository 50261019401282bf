// Constrained output: answers that have to be JSON, match a schema, a pattern or a grammar.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/types.h"
#include "core/token_constraint.h"
#include "minisgl/sampling_params.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// Compiles response formats for one vocabulary and keeps the last ones, so that a format that
/// comes again costs nothing. Thread-safe: of several threads that ask for the same text, one
/// compiles it and the others wait.
///
/// Special tokens and ids without a token (padding of the model's vocabulary) are never allowed;
/// the ids that end an answer are, where the format is fulfilled, and no other then. All memory of
/// a vocabulary is taken by the first request for a constraint.
class Grammars {
 public:
  struct Options {
    std::int32_t vocab_size = 0;        ///< width of the model's logits
    std::vector<TokenId> end_ids = {};  ///< end an answer; ids outside the vocabulary are ignored
    std::int64_t cache_bytes = std::int64_t{256} << 20;  ///< for formats that no answer uses
    int num_threads = 1;                                 ///< that compile one format
  };

  /// `tokenizer` must outlive this object.
  Grammars(const Tokenizer& tokenizer, Options options);
  ~Grammars();

  /// What follows one answer; it may outlive this object. `format` is not text. Throws RequestError
  /// (param "response_format") for a format that is ill-formed, not enforced (grammar/schema.h),
  /// too large, or, in a build without xgrammar, any. May take seconds: not for the scheduler's
  /// thread.
  std::unique_ptr<TokenConstraint> constraint(const ResponseFormat& format);

  /// Whether this build has xgrammar.
  static bool built();

  /// Bytes of compiled formats in the cache, as far as xgrammar counts them.
  std::int64_t cached_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
