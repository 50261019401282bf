// A ScheduledRun on several ranks, which are threads of this process.

#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "testing/local_ranks.h"
#include "testing/scheduled_run.h"

namespace minisgl::testing_util {

/// Runs `use` with rank 0's ScheduledRun of a model divided over `size` ranks; the other ranks
/// follow until it returns. Their batches are compared at every step, and their ledgers verified
/// at the end.
inline void run_on_ranks(int size, const std::filesystem::path& model, const RunConfig& config,
                         const std::function<void(ScheduledRun&)>& use) {
  run_ranks(size, [&](int rank, LocalRank& local) {
    RunConfig own = config;
    own.ranks = local.links(size);
    own.shard = {rank, size};
    ScheduledRun run(model, own);
    if (rank == 0) {
      use(run);
      run.stop();
    }
    while (!run.stopped()) run.step();
    run.check_integrity();
  });
}

}  // namespace minisgl::testing_util
