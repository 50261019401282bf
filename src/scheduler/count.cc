#include "scheduler/count.h"

#include <algorithm>
#include <bit>
#include <chrono>

namespace minisgl {

void count_step(const Batch& batch, SchedulerStats& stats) {
  ++stats.steps;
  const bool prefills = batch.num_decode < batch.num_rows;
  const bool decodes = batch.num_decode > 0;
  if (prefills && decodes) {
    ++stats.mixed_steps;
  } else {
    ++(prefills ? stats.prefill_steps : stats.decode_steps);
  }
  stats.step_rows += batch.num_rows;
  // 0 for 1 row, 1 for 2, 2 for 3 and 4, 3 for 5 to 8.
  const auto size =
      static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(batch.num_rows - 1)));
  ++stats.steps_by_rows[std::min(size, stats.steps_by_rows.size() - 1)];
}

void count_finish(FinishReason finish, SchedulerStats& stats) {
  switch (finish) {
    case FinishReason::kNone: return;
    case FinishReason::kStop: ++stats.stopped; return;
    case FinishReason::kLength: ++stats.length_reached; return;
    case FinishReason::kAbort: ++stats.aborted; return;
    case FinishReason::kError: ++stats.failed; return;
  }
}

void count_admission(const RequestTimes& times, SchedulerStats& stats) {
  ++stats.admitted;
  stats.queue_seconds += std::chrono::duration<double>(times.scheduled - times.arrival).count();
}

}  // namespace minisgl
