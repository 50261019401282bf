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

std::int32_t room_tokens(const ExecutorLimits& limits) {
  return std::min(limits.max_seq_len, limits.num_pages * limits.page_size);
}

namespace {

/// What is not there must not be ignored.
void check_supported(const NewRequest& request) {
  const SamplingParams& s = request.sampling;
  const auto refuse_if = [](bool asked, const char* field) {
    if (asked)
      throw RequestError(fmt::format("{} is not supported; leave it out", field), field,
                         "unsupported_parameter");
  };
  refuse_if(s.presence_penalty != 0, "presence_penalty");
  refuse_if(s.frequency_penalty != 0, "frequency_penalty");
  refuse_if(s.repetition_penalty != 1, "repetition_penalty");
  refuse_if(!s.logit_bias.empty(), "logit_bias");
  refuse_if(s.min_tokens > 0, "min_tokens");
  refuse_if(s.num_logprobs.has_value(), "num_logprobs");
  refuse_if(s.prompt_logprobs.has_value(), "prompt_logprobs");
  refuse_if(s.response_format.kind != ResponseFormat::Kind::kText || request.constraint != nullptr,
            "response_format");
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
  check_supported(request);
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
