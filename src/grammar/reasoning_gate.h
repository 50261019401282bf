// Free reasoning before a constrained answer.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "core/token_constraint.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// What reasoning is written with, in one vocabulary. Immutable: any thread may use it.
class ReasoningTokens {
 public:
  /// Reasoning stands between the tokens `begin` and `end`, whose texts these are. Null if the
  /// vocabulary lacks one of them, or has it as a special token, which is no part of the text.
  /// `tokenizer` must outlive the result. `vocab_size`: of the model; `end_ids` end an answer.
  static std::shared_ptr<const ReasoningTokens> of(const Tokenizer& tokenizer,
                                                   std::int32_t vocab_size,
                                                   std::span<const TokenId> end_ids,
                                                   std::string_view begin, std::string_view end);

  TokenId begin() const { return begin_; }
  std::string_view end_tag() const { return end_tag_; }
  std::string_view bytes(TokenId id) const { return tokenizer_->token_bytes(id); }
  /// A mask of what may stand in reasoning: everything but special tokens and the ends of answers.
  std::span<const std::int32_t> inside() const { return inside_; }

 private:
  explicit ReasoningTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  const Tokenizer* tokenizer_;
  TokenId begin_ = -1;
  std::string end_tag_;
  std::vector<std::int32_t> inside_;
};

/// Lets an answer begin with reasoning, in which every text may stand; what comes after the end tag
/// (white space in the end tag's own token aside) has to satisfy another constraint. An answer that
/// has not left its reasoning cannot end. (vLLM, too, leaves the reasoning of a model free; there
/// an answer is free as long as it has no end tag, here only once it has the tag of the beginning.)
class ReasoningGate final : public TokenConstraint {
 public:
  /// `in_reasoning`: the prompt ends with the tag that begins it. Else the first token says whether
  /// there is any.
  ReasoningGate(std::unique_ptr<TokenConstraint> answer,
                std::shared_ptr<const ReasoningTokens> tokens, bool in_reasoning);

  bool fill(std::span<std::int32_t> mask) override;
  bool accept(TokenId token) override;
  bool finished() const override { return state_ == State::kAnswer && answer_->finished(); }

 private:
  enum class State : std::uint8_t { kStart, kReasoning, kAnswer };

  bool reason(TokenId token);

  std::unique_ptr<TokenConstraint> answer_;
  std::shared_ptr<const ReasoningTokens> tokens_;
  State state_;
  std::string tail_;  // of the reasoning: what may be the beginning of the end tag
};

}  // namespace minisgl
