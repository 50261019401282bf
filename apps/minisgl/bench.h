// What the benchmarks of `minisgl bench` share.

#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"

namespace minisgl::app {

/// bench offline: prompts all at once, through the scheduler.
Command add_bench_offline(CLI::App& bench);
/// bench graphs: decode steps by the size of the graph that replays them.
Command add_bench_graphs(CLI::App& bench);
/// bench sums: how long ranks take to add up. Sums are checked before they are timed.
Command add_bench_sums(CLI::App& bench);

/// Since the system started this program; 0 where that cannot be told.
double seconds_since_start();

}  // namespace minisgl::app
