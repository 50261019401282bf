#include "scheduler/sequence.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace minisgl {

void Sequence::begin(NewRequest&& arrived, std::int32_t room_tokens, std::uint64_t seed) {
  request.id = arrived.id;
  request.tokens = std::move(arrived.prompt);
  request.prompt_len = static_cast<std::int32_t>(request.tokens.size());
  request.sampling = std::move(arrived.sampling);
  request.constraint = std::move(arrived.constraint);
  request.seed = request.sampling.seed.value_or(seed);
  request.device_len = request.prompt_len;
  const std::int64_t left = room_tokens - request.prompt_len;
  if (request.sampling.max_tokens > left) {
    log::debug("request {}: max_tokens lowered from {} to {}", request.id.value,
               request.sampling.max_tokens, left);
  }
  // A prompt that is only scored draws a token that nobody gets.
  const std::int64_t drawn = std::max<std::int64_t>(1, request.sampling.max_tokens);
  request.max_device_len = request.prompt_len + static_cast<std::int32_t>(std::min(drawn, left));
}

bool Sequence::is_end_token(TokenId token, std::span<const TokenId> eos_ids) const {
  const std::vector<std::int32_t>& stop_ids = request.sampling.stop_token_ids;
  const bool is_eos =
      !request.sampling.ignore_eos && std::binary_search(eos_ids.begin(), eos_ids.end(), token);
  return is_eos || std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
}

void Sequence::make_edits(std::span<const TokenId> eos_ids, std::int32_t vocab_size) {
  const SamplingParams& sampling = request.sampling;
  if (!EditList::is_needed(sampling)) return;
  std::vector<TokenId> end_ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) end_ids.insert(end_ids.end(), eos_ids.begin(), eos_ids.end());
  edits = std::make_unique<EditList>(
      sampling,
      EditList::Context{.prompt = request.tokens, .end_ids = end_ids, .vocab_size = vocab_size});
}

FinishReason Sequence::finish_after_token(bool is_end_token) const {
  if (is_end_token) return FinishReason::kStop;
  if (request.constraint != nullptr && request.constraint->finished()) return FinishReason::kStop;
  if (num_generated() >= max_tokens()) return FinishReason::kLength;
  return FinishReason::kNone;
}

TokenEvent Sequence::event(FinishReason finish) const {
  TokenEvent result;
  result.request = request.id;
  result.finish = finish;
  result.cached_tokens = cached_tokens;
  result.times = times;
  return result;
}

void Sequence::take_prompt_logprobs(const BatchRow& row, PositionLogprobs*& next) {
  if (!request.sampling.prompt_logprobs) return;
  const std::int32_t end = std::min(row.device_len, request.prompt_len - 1);
  for (std::int32_t at = row.cached_len; at < end; ++at)
    prompt_logprobs.push_back(std::move(*next++));
}

}  // namespace minisgl
