// How the process of a server ends when its engine breaks.

#include "serve_loop.h"

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "minisgl/error.h"
#include "server/server_fixture_for_test.h"
#include "testing/fake_executor.h"

namespace minisgl::app {
namespace {

using testing_util::Client;
using testing_util::FakeExecutor;
using testing_util::Reply;

// The engine breaks at its 400th step.
std::unique_ptr<LocalGenerator> generator_with_fault() {
  const ExecutorLimits limits{.num_pages = 4096,
                              .page_size = 1,
                              .max_rows = 2,
                              .max_seq_len = 1000,
                              .max_step_tokens = 300,
                              .vocab_size = 100};
  auto executor = std::make_unique<FakeExecutor>(
      limits,
      [](std::span<const TokenId> history) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // all clients come in time
        return (history.back() + 1) % 100;
      },
      /*seed=*/1);
  executor->fail_at_launch = 400;
  return std::make_unique<LocalGenerator>("fake", std::move(executor), /*tokenizer=*/nullptr,
                                          SchedulerConfig{});
}

std::string completion(bool stream) {
  return Client::post(
      "/v1/completions",
      std::string(R"({"prompt":[1,2,3],"max_tokens":900,"ignore_eos":true,"stream":)") +
          (stream ? "true}" : "false}"));
}

// As `minisgl serve` goes on once its model is loaded. Ends the process: with 1 for the fault, as
// main() does for an Error; with 3 if a client was not told of it.
[[noreturn]] void serve_with_fault() {
  log::set_level(log::Level::kOff);
  const sigset_t signals = block_signals();
  const std::unique_ptr<LocalGenerator> generator = generator_with_fault();
  ServerOptions options;
  options.port = 0;
  Server server(*generator, options);
  server.start();
  std::atomic<int> num_told = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i)  // two run, four wait
    clients.emplace_back([&, stream = i % 2 == 0] {
      const Reply reply = Client(server.port()).ask(completion(stream));
      const bool told = reply.complete && reply.body.find("launch failed") != std::string::npos;
      const bool ended = !stream || reply.body.ends_with("data: [DONE]\n\n");
      if (told && ended && reply.status == (stream ? 200 : 500)) ++num_told;
    });
  int status = 0;
  try {
    serve_until_stopped(server, *generator, signals, std::chrono::milliseconds(5000));
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  for (std::thread& client : clients) client.join();
  std::exit(num_told == 6 ? status : 3);
}

TEST(ServeLoopDeathTest, AFaultOfTheEngineIsToldToAllInFlightAndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(serve_with_fault(), testing::ExitedWithCode(1),
              "the engine has failed: launch failed");
}

TEST(ServeLoopDeathTest, ASignalWhileItLoadsEndsIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto load = [] {
    const ExitOnSignal exit_on_signal(block_signals());
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(30));
    std::exit(3);
  };
  EXPECT_EXIT(load(), testing::ExitedWithCode(0), "Stopped while loading");
}

TEST(ServeLoopDeathTest, ASignalEndsItWithoutAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto serve = [] {
    log::set_level(log::Level::kOff);
    const sigset_t signals = block_signals();
    const std::unique_ptr<LocalGenerator> generator = generator_with_fault();
    ServerOptions options;
    options.port = 0;
    Server server(*generator, options);
    server.start();
    ::kill(::getpid(), SIGTERM);
    serve_until_stopped(server, *generator, signals, std::chrono::milliseconds(5000));
    std::exit(0);
  };
  EXPECT_EXIT(serve(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace minisgl::app
