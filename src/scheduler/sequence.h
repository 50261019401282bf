#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/request.h"
#include "scheduler/edit_list.h"
#include "scheduler/scheduler.h"

namespace minisgl {

/// A request as the scheduler sees it, from its arrival until its pages are released.
struct Sequence {
  Request request;
  std::int64_t arrival = 0;          ///< number of its arrival; admission keeps this order
  std::int32_t cached_tokens = 0;    ///< prompt tokens that came from the prefix cache
  std::int32_t steps_in_flight = 0;  ///< launched, not collected steps that have a row of it
  bool ended = false;                ///< its last event was sent; what is in flight is dropped
  RequestTimes times;
  std::unique_ptr<EditList> edits = nullptr;           ///< of a request that edits logits
  std::vector<PositionLogprobs> prompt_logprobs = {};  ///< of the prompt's chunks so far

  bool admitted() const { return request.row.value >= 0; }
  /// Tokens of the answer that the host knows.
  std::int64_t num_generated() const {
    return static_cast<std::int64_t>(request.tokens.size()) - request.prompt_len;
  }
  std::int64_t max_tokens() const { return request.max_device_len - request.prompt_len; }
  /// What its next token may be follows from the tokens before it.
  bool follows_tokens() const {
    return request.constraint != nullptr || (edits != nullptr && edits->follows_tokens());
  }

  /// Makes the ledger of a request that was checked. The answer is limited to what `room_tokens`
  /// for it and its prompt leave; draws use the request's seed, or else `seed`.
  void begin(NewRequest&& arrived, std::int32_t room_tokens, std::uint64_t seed);
  /// Whether `token` ends the answer: an end-of-sequence token of the model (`eos_ids`, ascending),
  /// unless the request ignores them, or one of its stop tokens.
  bool is_end_token(TokenId token, std::span<const TokenId> eos_ids) const;
  /// Sets `edits` if the request needs them. The prompt must be there.
  void make_edits(std::span<const TokenId> eos_ids, std::int32_t vocab_size);
  /// What the receiver of events is told of it now.
  TokenEvent event(FinishReason finish) const;
  /// Whether the answer ends with its last token, and why.
  FinishReason finish_after_token(bool is_end_token) const;
  /// Moves the log-probabilities of the row's share of a prompt here, from `next` on, which is then
  /// behind them.
  void take_prompt_logprobs(const BatchRow& row, PositionLogprobs*& next);
};

}  // namespace minisgl
