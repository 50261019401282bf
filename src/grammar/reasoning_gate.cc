#include "grammar/reasoning_gate.h"

#include <algorithm>
#include <utility>

namespace minisgl {
namespace {

constexpr std::int32_t kBitsPerWord = 32;

void set_bit(std::span<std::int32_t> mask, TokenId id) {
  auto& word = mask[static_cast<std::size_t>(id / kBitsPerWord)];
  word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | std::uint32_t{1}
                                                                          << (id % kBitsPerWord));
}

}  // namespace

std::shared_ptr<const ReasoningTokens> ReasoningTokens::of(const Tokenizer& tokenizer,
                                                           std::int32_t vocab_size,
                                                           std::span<const TokenId> end_ids,
                                                           std::string_view begin,
                                                           std::string_view end) {
  const auto is_usable = [&](const std::optional<TokenId>& id) {
    return id && *id < vocab_size && !tokenizer.is_special(*id);
  };
  const std::optional<TokenId> begin_id = tokenizer.token_to_id(begin);
  if (!is_usable(begin_id) || !is_usable(tokenizer.token_to_id(end))) return nullptr;
  std::shared_ptr<ReasoningTokens> tokens(new ReasoningTokens(tokenizer));
  tokens->begin_ = *begin_id;
  tokens->end_tag_ = end;
  tokens->inside_.resize(static_cast<std::size_t>((vocab_size + kBitsPerWord - 1) / kBitsPerWord));
  for (TokenId id = 0; id < std::min(vocab_size, tokenizer.vocab_size()); ++id) {
    const bool ends = std::find(end_ids.begin(), end_ids.end(), id) != end_ids.end();
    if (!ends && !tokenizer.is_special(id) && !tokenizer.token_bytes(id).empty())
      set_bit(tokens->inside_, id);
  }
  return tokens;
}

ReasoningGate::ReasoningGate(std::unique_ptr<TokenConstraint> answer,
                             std::shared_ptr<const ReasoningTokens> tokens, bool in_reasoning)
    : answer_(std::move(answer)),
      tokens_(std::move(tokens)),
      state_(in_reasoning ? State::kReasoning : State::kStart) {}

bool ReasoningGate::fill(std::span<std::int32_t> mask) {
  if (state_ == State::kReasoning) {
    std::copy(tokens_->inside().begin(), tokens_->inside().end(), mask.begin());
    return true;
  }
  if (!answer_->fill(mask)) return false;
  if (state_ == State::kStart) set_bit(mask, tokens_->begin());
  return true;
}

bool ReasoningGate::accept(TokenId token) {
  if (state_ == State::kReasoning) return reason(token);
  if (state_ == State::kStart && token == tokens_->begin()) {
    state_ = State::kReasoning;
    return true;
  }
  state_ = State::kAnswer;
  return answer_->accept(token);
}

// The tag may also be spelt by several tokens: whoever reads the text sees no difference.
bool ReasoningGate::reason(TokenId token) {
  tail_ += tokens_->bytes(token);
  const std::string_view tag = tokens_->end_tag();
  const std::size_t at = tail_.find(tag);
  if (at == std::string::npos) {
    if (tail_.size() >= tag.size()) tail_.erase(0, tail_.size() - tag.size() + 1);
    return true;
  }
  state_ = State::kAnswer;
  // A token that goes on after the tag would begin the answer unseen.
  return tail_.find_first_not_of(" \t\r\n", at + tag.size()) == std::string::npos;
}

}  // namespace minisgl
