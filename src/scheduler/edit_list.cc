#include "scheduler/edit_list.h"

#include <limits>

namespace minisgl {
namespace {

bool has_penalty(const SamplingParams& s) {
  return s.presence_penalty != 0 || s.frequency_penalty != 0 || s.repetition_penalty != 1;
}

}  // namespace

bool EditList::is_needed(const SamplingParams& sampling) {
  return has_penalty(sampling) || !sampling.logit_bias.empty() || sampling.min_tokens > 0;
}

EditList::EditList(const SamplingParams& sampling, const Context& context)
    : min_tokens_(sampling.min_tokens),
      counts_tokens_(has_penalty(sampling)),
      has_bias_(!sampling.logit_bias.empty()) {
  const auto is_known = [&](TokenId id) { return id >= 0 && id < context.vocab_size; };
  if (min_tokens_ > 0)
    for (const TokenId id : context.end_ids)
      if (is_known(id)) edit_of(id);
  const std::size_t num_end = edits_.size();
  for (const LogitBias& bias : sampling.logit_bias)
    if (is_known(bias.token)) edit_of(bias.token).bias = static_cast<float>(bias.bias);
  for (std::size_t i = 0; i < num_end; ++i) end_biases_.push_back(edits_[i].bias);
  if (sampling.repetition_penalty == 1) return;
  for (const TokenId id : context.prompt) edit_of(id).is_seen = true;
}

TokenEdit& EditList::edit_of(TokenId token) {
  const auto [found, is_new] = index_.try_emplace(token, edits_.size());
  if (is_new) edits_.push_back({.token = token});
  return edits_[found->second];
}

void EditList::add(TokenId token) {
  if (!counts_tokens_) return;
  TokenEdit& edit = edit_of(token);
  ++edit.count;
  edit.is_seen = true;
}

std::span<const TokenEdit> EditList::before(std::int64_t position) {
  const bool may_end = position >= min_tokens_;
  if (may_end && !counts_tokens_ && !has_bias_) return {};
  for (std::size_t i = 0; i < end_biases_.size(); ++i)
    edits_[i].bias = may_end ? end_biases_[i] : -std::numeric_limits<float>::infinity();
  return edits_;
}

}  // namespace minisgl
