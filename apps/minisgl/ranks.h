// Commands that run a model on several ranks.

#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "llm/local_generator.h"
#include "minisgl/llm.h"

namespace minisgl::app {

struct RankFlags {
  int size = 1;
  double timeout_s = 60;
  bool check = false;
};

/// --tp, --distributed-timeout, --check-ranks.
void add_rank_flags(CLI::App& app, RankFlags& flags);

/// What a rank does: it is given its group.
using OnRank = std::function<int(const RankSetup&)>;

/// Calls `first` on the first rank and `other` on each other one (RANK and WORLD_SIZE of the
/// environment say so), connected with each other; returns the exit status. Without these variables
/// this process is the first rank and starts the others. The size must be above 1.
int on_ranks(const RankFlags& flags, const OnRank& first, const OnRank& other);

/// Calls `command` on the first rank, with what its LocalGenerator needs to know, and returns its
/// exit status. The other ranks compute what the first one asks for until that ends. Throws Error
/// if the model cannot be divided so, if a rank does not come, or has to be killed in the end.
int with_ranks(const RankFlags& flags, const LlmOptions& options, const OnRank& command);

}  // namespace minisgl::app
