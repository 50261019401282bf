// What can be served at all.

#pragma once

#include <cstdint>

#include "engine/executor.h"
#include "scheduler/scheduler.h"

namespace minisgl {

/// Returns `limits`; throws Error naming the one that makes no sense.
const ExecutorLimits& checked_limits(const ExecutorLimits& limits);

/// `config` with what it lists in order; throws Error naming the option that makes no sense.
SchedulerConfig checked_config(SchedulerConfig config);

/// Tokens that one request, prompt and answer, may have: the context, or the pool where that is
/// smaller.
std::int32_t room_tokens(const ExecutorLimits& limits);

/// Throws RequestError as Scheduler::validate() says.
void check_request(const NewRequest& request, const ExecutorLimits& limits);

}  // namespace minisgl
