// The ledger of one request.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/types.h"
#include "core/token_constraint.h"
#include "minisgl/sampling_params.h"

namespace minisgl {

/// A position in a prefix cache: the first `cached_len` tokens of a prompt lie there. Made by
/// PrefixCache::match() and insert(); what it points at stays only while it is locked.
struct PrefixHandle {
  std::int32_t node = 0;  ///< index of a node of the cache; 0 is the root
  std::int32_t cached_len = 0;
};

/// Why an answer ended.
enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kAbort, kError };

/// Three lengths (tokens), a row and a cache handle; kernels receive only what an attention
/// backend makes of them.
///
/// Invariants: 0 <= cached_len < device_len <= max_device_len while it waits for a step; tokens
/// holds what the host knows, which lags device_len by one while a step is in flight.
struct Request {
  RequestId id;
  std::vector<TokenId> tokens;  ///< prompt, then what was generated
  std::int32_t prompt_len = 0;
  SamplingParams sampling;
  std::uint64_t seed = 0;                                 ///< sampling.seed, or the engine's choice
  std::unique_ptr<TokenConstraint> constraint = nullptr;  ///< of sampling.response_format

  std::int32_t cached_len = 0;      ///< keys and values of so many tokens are in the pool
  std::int32_t device_len = 0;      ///< tokens that the next step will have made part of the pool
  std::int32_t max_device_len = 0;  ///< prompt_len + max_tokens, as far as the context allows
  RowId row{-1};
  PrefixHandle prefix;

  /// A step that computes tokens [cached_len, device_len) was launched. What is next: the rest of
  /// the prompt, or one token after it. Source: mini-sglang core.py complete_one().
  void complete_step() {
    cached_len = device_len;
    device_len = std::max(prompt_len, cached_len + 1);
  }

  std::int32_t extend_len() const { return device_len - cached_len; }
  std::int32_t remain_len() const { return max_device_len - device_len; }
  bool can_decode() const { return remain_len() > 0; }
};

}  // namespace minisgl
