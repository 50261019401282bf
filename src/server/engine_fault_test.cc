// What clients see when the engine breaks under a real scheduler.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "llm/local_generator.h"
#include "server/server_fixture_for_test.h"
#include "testing/fake_executor.h"

namespace minisgl {
namespace {

using namespace testing_util;

TEST(EngineFaultTest, EverythingInFlightGetsAnErrorAndSoDoesWhatComesLater) {
  log::set_level(log::Level::kOff);
  const ExecutorLimits limits{.num_pages = 4096,
                              .page_size = 1,
                              .max_rows = 2,
                              .max_seq_len = 1000,
                              .max_step_tokens = 300,
                              .vocab_size = 100};
  auto executor = std::make_unique<FakeExecutor>(
      limits, [](std::span<const TokenId> history) { return (history.back() + 1) % 100; },
      /*seed=*/1);
  executor->fail_at_launch = 400;
  LocalGenerator generator("fake", std::move(executor), /*tokenizer=*/nullptr, SchedulerConfig{});
  ServerOptions options;
  options.port = 0;
  Server server(generator, options);
  server.start();
  const auto body = [](bool stream) {
    return std::string(R"({"prompt":[1,2,3],"max_tokens":900,"ignore_eos":true,"stream":)") +
           (stream ? "true}" : "false}");
  };
  std::atomic<int> num_told = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i)  // two run, four wait
    clients.emplace_back([&, i] {
      const Reply reply =
          Client(server.port()).ask(Client::post("/v1/completions", body(i % 2 == 0)));
      const bool told = reply.body.find("launch failed") != std::string::npos && reply.complete;
      if (told && reply.status == (i % 2 == 0 ? 200 : 500)) ++num_told;
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_told, 6);
  generator.wait();  // clients are told first
  EXPECT_EQ(generator.fault(), "launch failed") << "for which the program ends with status 1";
  const Reply later = Client(server.port()).ask(Client::post("/v1/completions", body(false)));
  EXPECT_EQ(later.status, 500);
  EXPECT_NE(later.body.find("launch failed"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
