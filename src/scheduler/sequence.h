#pragma once

#include <cstdint>

#include "core/request.h"
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

  bool admitted() const { return request.row.value >= 0; }
  /// Tokens of the answer that the host knows.
  std::int64_t num_generated() const {
    return static_cast<std::int64_t>(request.tokens.size()) - request.prompt_len;
  }
  std::int64_t max_tokens() const { return request.max_device_len - request.prompt_len; }
};

}  // namespace minisgl
