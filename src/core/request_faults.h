// Errors that end one answer because of what its request asked for, while the engine goes on.

#pragma once

#include <string_view>

namespace minisgl {

/// For example a pattern with a character that no token of the vocabulary is part of.
inline constexpr const char* kNoTokenCanFollow =
    "no token can follow: the response format and the other sampling parameters leave none";
inline constexpr const char* kTokenDoesNotFit =
    "the token that was drawn does not fit the response format; min_tokens or a logit_bias may "
    "have left no other";

/// Whether an answer with FinishReason::kError and this text failed by its request's fault: a
/// server answers with a status of the client's errors, not of its own.
constexpr bool is_fault_of_request(std::string_view error) {
  return error == kNoTokenCanFollow || error == kTokenDoesNotFit;
}

}  // namespace minisgl
