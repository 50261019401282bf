// What a request does to the logits of its next token.

#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "core/batch.h"
#include "minisgl/sampling_params.h"

namespace minisgl {

/// The edits of one request: biases, the tokens that may not end the answer yet, and the tokens
/// that penalties count. Follows the answer token by token, so that a step costs as many edits as
/// there are different tokens, not as many as the vocabulary has. Not thread-safe.
class EditList {
 public:
  struct Context {
    std::span<const TokenId> prompt;
    std::span<const TokenId> end_ids;  ///< tokens that would end the answer
    std::int32_t vocab_size = 0;       ///< ids that the logits have; others are left out
  };

  /// Whether a request with these parameters edits anything, ever.
  static bool is_needed(const SamplingParams& sampling);

  EditList(const SamplingParams& sampling, const Context& context);

  /// The edits follow from the tokens of the answer, not from its length alone.
  bool follows_tokens() const { return counts_tokens_; }

  /// The answer has gained `token`.
  void add(TokenId token);

  /// The edits before the token at `position` of the answer is drawn; of different tokens, valid
  /// until the next call. Empty when nothing is to be done.
  std::span<const TokenEdit> before(std::int64_t position);

 private:
  TokenEdit& edit_of(TokenId token);

  std::int64_t min_tokens_;
  bool counts_tokens_;
  std::vector<TokenEdit> edits_;  // first those of end tokens, with their biases in end_biases_
  std::vector<float> end_biases_;
  std::unordered_map<TokenId, std::size_t> index_;  // of edits_; never iterated
  bool has_bias_;
};

}  // namespace minisgl
