#include "scheduler/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"

namespace minisgl {

const ExecutorLimits& checked_limits(const ExecutorLimits& limits) {
  check(limits.num_pages > 0 && limits.page_size > 0, "scheduler: ", limits.num_pages, " pages of ",
        limits.page_size, " tokens; both must be at least 1");
  check((std::int64_t{limits.num_pages} + 1) * limits.page_size <=
            std::numeric_limits<TokenLoc>::max(),
        "scheduler: ", limits.num_pages, " pages of ", limits.page_size,
        " tokens are more than 2^31 - 1 locations");
  check(limits.max_rows > 0, "scheduler: max_rows is ", limits.max_rows, "; it must be at least 1");
  check(limits.max_seq_len > 1, "scheduler: max_seq_len is ", limits.max_seq_len,
        "; it must be at least 2");
  // All rows but one decode: there must be room for a prompt token of the last.
  check(limits.max_step_tokens >= limits.max_rows, "scheduler: max_step_tokens is ",
        limits.max_step_tokens, "; it must be at least max_rows, ", limits.max_rows);
  return limits;
}

SchedulerConfig checked_config(SchedulerConfig config) {
  check(config.prefill_budget_tokens > 0, "scheduler: prefill_budget_tokens is ",
        config.prefill_budget_tokens, "; it must be at least 1");
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  return config;
}

std::int32_t room_tokens(const ExecutorLimits& limits) {
  return std::min(limits.max_seq_len, limits.num_pages * limits.page_size);
}

namespace {

/// A format that nothing enforces must not be ignored.
void check_format(const NewRequest& request) {
  const bool is_text = request.sampling.response_format.kind == ResponseFormat::Kind::kText;
  if (is_text || request.constraint != nullptr) return;
  throw RequestError("response_format is not supported here other than \"text\"; leave it out",
                     "response_format", "unsupported_parameter");
}

}  // namespace

void check_request(const NewRequest& request, const ExecutorLimits& limits) {
  validate(request.sampling);
  const std::vector<TokenId>& prompt = request.prompt;
  if (prompt.empty()) {
    throw RequestError("the prompt is empty; it must have at least one token", "prompt");
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < limits.vocab_size) continue;
    throw RequestError(
        fmt::format("token id {} at position {} of the prompt is outside the vocabulary "
                    "of {} ids",
                    prompt[i], i, limits.vocab_size),
        "prompt");
  }
  check_format(request);
  for (const LogitBias& bias : request.sampling.logit_bias) {
    if (bias.token >= 0 && bias.token < limits.vocab_size) continue;
    throw RequestError(fmt::format("logit_bias names token {}; the vocabulary has ids from 0 to {}",
                                   bias.token, limits.vocab_size - 1),
                       "logit_bias");
  }
  const std::int32_t most = room_tokens(limits);
  if (prompt.size() < static_cast<std::size_t>(most)) return;
  const std::string room = limits.max_seq_len == most
                               ? fmt::format("context of {} tokens", most)
                               : fmt::format("KV cache of {} tokens ({} pages of {})", most,
                                             limits.num_pages, limits.page_size);
  throw RequestError(
      fmt::format("the prompt has {} tokens, but the {} must hold it and at least one "
                  "token of the answer",
                  prompt.size(), room),
      "prompt", "context_length_exceeded");
}

}  // namespace minisgl
