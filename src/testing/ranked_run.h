// A ScheduledRun on several ranks.

#pragma once

#include <filesystem>
#include <functional>

#include "testing/local_ranks.h"
#include "testing/scheduled_run.h"

namespace minisgl::testing_util {

/// This rank's part of a ScheduledRun of a model divided over the ranks of `links`: calls `use`
/// with it on rank 0, while the others follow until it returns. Their batches are compared at every
/// step, and their ledgers verified at the end.
inline void run_one_rank(RankLinks links, layers::Shard shard, const std::filesystem::path& model,
                         RunConfig config, const std::function<void(ScheduledRun&)>& use) {
  config.ranks = links;
  config.shard = shard;
  ScheduledRun run(model, config);
  if (shard.rank == 0) {
    use(run);
    run.stop();
  }
  while (!run.stopped()) run.step();
  run.check_integrity();
}

/// The same on `size` ranks, which are threads of this process: on CPUs.
inline void run_on_ranks(int size, const std::filesystem::path& model, const RunConfig& config,
                         const std::function<void(ScheduledRun&)>& use) {
  run_ranks(size, [&](int rank, LocalRank& local) {
    run_one_rank(local.links(size), {rank, size}, model, config, use);
  });
}

}  // namespace minisgl::testing_util
