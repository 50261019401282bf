#include "serve_loop.h"

#include <pthread.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "base/log.h"
#include "minisgl/error.h"

namespace minisgl::app {
namespace {

/// Waits up to `timeout`; whether a signal came.
bool wait_for_signal(const sigset_t& signals, std::chrono::milliseconds timeout) {
  timespec limit{};
  limit.tv_sec = timeout.count() / 1000;
  limit.tv_nsec = timeout.count() % 1000 * 1'000'000;
  return sigtimedwait(&signals, nullptr, &limit) > 0;
}

/// Running answers may end; a second signal cuts them off.
void stop(Server& server, const sigset_t& signals, std::chrono::milliseconds deadline) {
  std::atomic<bool> stopped{false};
  std::thread stopping([&] {
    server.stop(deadline);
    stopped.store(true);
  });
  constexpr auto kPoll = std::chrono::milliseconds(20);
  while (!stopped.load()) {
    if (!wait_for_signal(signals, kPoll)) continue;
    log::warning("Stopping at once");
    server.stop(std::chrono::milliseconds(0));
  }
  stopping.join();
}

}  // namespace

sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

ExitOnSignal::ExitOnSignal(const sigset_t& signals)
    : thread_([this, signals] {
        constexpr auto kPoll = std::chrono::milliseconds(10);
        while (!done_.load()) {
          if (!wait_for_signal(signals, kPoll)) continue;
          log::info("Stopped while loading");
          std::_Exit(0);  // other threads are in the middle of things
        }
      }) {}

ExitOnSignal::~ExitOnSignal() {
  done_.store(true);
  thread_.join();
}

void serve_until_stopped(Server& server, LocalGenerator& generator, const sigset_t& signals,
                         std::chrono::milliseconds deadline) {
  constexpr auto kPoll = std::chrono::milliseconds(200);
  std::string fault;
  bool signalled = false;
  while (!signalled && fault.empty()) {
    signalled = wait_for_signal(signals, kPoll);
    fault = generator.fault();
  }
  if (signalled)
    log::info("Stopping: running answers have {} s to end; a second signal cuts them off",
              std::chrono::duration<double>(deadline).count());
  stop(server, signals, deadline);
  generator.stop();
  fault = generator.fault();  // which may have come meanwhile
  if (!fault.empty()) throw Error("the engine has failed: " + fault);
}

}  // namespace minisgl::app
