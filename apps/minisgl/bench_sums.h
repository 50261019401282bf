// bench sums: how long ranks take to add up.

#pragma once

#include "commands.h"

namespace minisgl::app {

/// Adds the flags of `bench sums` to `app`; returns what runs it. Sums are checked before they are
/// timed.
Command add_bench_sums(CLI::App& app);

}  // namespace minisgl::app
