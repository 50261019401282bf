// What the scheduler counts of a step and of an answer.

#pragma once

#include "core/batch.h"
#include "core/request.h"
#include "scheduler/scheduler.h"

namespace minisgl {

/// A step, before padding rows are added.
void count_step(const Batch& batch, SchedulerStats& stats);
/// An answer's end; nothing for kNone.
void count_finish(FinishReason finish, SchedulerStats& stats);
/// A request got its row.
void count_admission(const RequestTimes& times, SchedulerStats& stats);

}  // namespace minisgl
