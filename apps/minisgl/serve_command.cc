// serve: the HTTP server, until a signal.

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>
#include <thread>

#include "base/log.h"
#include "commands.h"
#include "llm/local_generator.h"
#include "minisgl/server.h"

namespace minisgl::app {
namespace {

struct Options {
  LlmOptions llm;
  ServerOptions server;
};

/// SIGINT and SIGTERM, blocked for all threads that are made from now on, so that one thread can
/// wait for them.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

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

int serve(const Options& options) {
  check_can_listen(options.server);  // loading a model may take long
  const sigset_t signals = block_signals();
  LocalGenerator generator(options.llm);
  Server server(generator, options.server);
  server.start();
  const std::string host = options.server.host == "0.0.0.0" ? "127.0.0.1" : options.server.host;
  log::info("Ready: {} is served at http://{}:{}/v1", generator.model_name(), host, server.port());
  constexpr auto kPoll = std::chrono::milliseconds(200);
  std::string fault;
  bool signalled = false;
  while (!signalled && fault.empty()) {
    signalled = wait_for_signal(signals, kPoll);
    fault = generator.fault();
  }
  if (signalled)
    log::info(
        "Stopping: running answers have {} s to end; a second signal cuts them off",
        std::chrono::duration_cast<std::chrono::seconds>(options.server.stop_deadline).count());
  stop(server, signals, options.server.stop_deadline);
  if (!fault.empty()) throw Error("the engine has failed: " + fault);
  log::info("Stopped");
  return 0;
}

}  // namespace

Command add_serve(CLI::App& app) {
  auto options = std::make_shared<Options>();
  ServerOptions& s = options->server;
  app.add_option("--host", s.host, "Address to listen on; 0.0.0.0: every interface")
      ->type_name("HOST")
      ->capture_default_str();
  app.add_option("--port", s.port, "Port to listen on; 0: any free one")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--served-model-name", options->llm.served_model_name,
                 "The model's id in the API; default: its file's name")
      ->type_name("NAME");
  app.add_option("--metrics-prefix", s.metrics_prefix,
                 "Begins the names of /metrics; vllm: suits dashboards made for vLLM")
      ->type_name("TEXT")
      ->capture_default_str();
  add_engine_flags(app, options->llm);
  add_chat_flags(app, options->llm);
  return [options] { return serve(*options); };
}

}  // namespace minisgl::app
