// A ScheduledRun on several ranks, which are threads of this process.

#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "comm/cuda/nccl_communicator.h"
#include "tensor/cuda/device.h"
#include "testing/local_ranks.h"
#include "testing/scheduled_run.h"

namespace minisgl::testing_util {

/// Runs `use` with rank 0's ScheduledRun of a model divided over `size` ranks (GPUs: one for
/// each); the other ranks follow until it returns. Their batches are compared at every step, and
/// their ledgers verified at the end.
inline void run_on_ranks(int size, const std::filesystem::path& model, const RunConfig& config,
                         const std::function<void(ScheduledRun&)>& use) {
  run_ranks(size, [&](int rank, LocalRank& local) {
    RunConfig own = config;
    own.ranks = local.links(size);
    own.shard = {rank, size};
    std::unique_ptr<Communicator> gpus;
    if constexpr (cuda::kBuilt) {
      if (!config.device.is_cpu()) {
        own.device.index = static_cast<std::int8_t>(rank);
        cuda::make_current(own.device);
        gpus = make_nccl_communicator(local.host, own.device, std::chrono::seconds(60));
        own.ranks.tensors = gpus.get();
      }
    }
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
