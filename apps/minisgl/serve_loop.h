// What a server does until it ends.

#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "llm/local_generator.h"
#include "minisgl/server.h"

namespace minisgl::app {

/// Blocks SIGINT and SIGTERM for this thread and all that it makes from now on, so that one thread
/// can wait for them. To be called before there is another.
sigset_t block_signals();

/// While it lives, one of `signals` ends the process with status 0: for the time in which a model
/// is loaded, when there is nothing yet to end in good order.
class ExitOnSignal {
 public:
  explicit ExitOnSignal(const sigset_t& signals);
  ~ExitOnSignal();
  ExitOnSignal(const ExitOnSignal&) = delete;
  ExitOnSignal& operator=(const ExitOnSignal&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// Waits for one of `signals`, or for a fault of the engine, and stops the server, then the engine:
/// running answers have `deadline` to end, a second signal cuts them off. Throws Error after a
/// fault, also one that comes in this time, when everything in flight has been answered with it.
void serve_until_stopped(Server& server, LocalGenerator& generator, const sigset_t& signals,
                         std::chrono::milliseconds deadline);

}  // namespace minisgl::app
