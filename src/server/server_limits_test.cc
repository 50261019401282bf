// Clients that leave, do not read or are too many, and servers that stop.

#include "minisgl/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/server_fixture_for_test.h"

namespace minisgl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using namespace testing_util;

class ServerLimitsTest : public ServerFixture {};

TEST_F(ServerLimitsTest, AClientThatGoesAbortsItsRequestWhateverItWaitsFor) {
  fake_.step = milliseconds(5);
  fake_.max_seq_len = 1'000'000;
  fake_.max_running = 2;
  start();
  Client busy1(server_->port()), busy2(server_->port());  // fill the running slots
  busy1.send(Client::post("/v1/chat/completions", chat(100'000, true)));
  busy2.send(Client::post("/v1/chat/completions", chat(100'000, true)));
  ASSERT_TRUE(generator_->wait_for_live(2));
  {
    Client streaming(server_->port()), whole(server_->port());  // both queued
    streaming.send(Client::post("/v1/chat/completions", chat(100'000, true)));
    whole.send(Client::post("/v1/chat/completions", chat(100'000, false)));
    ASSERT_TRUE(generator_->wait_for_live(4));
  }
  ASSERT_TRUE(generator_->wait_for_live(2)) << "queued requests go with their clients";
  busy1.read_until("\n\n");
  busy1.close();
  ASSERT_TRUE(generator_->wait_for_live(1)) << "a running stream goes with its client";
  Client whole(server_->port());
  whole.send(Client::post("/v1/chat/completions", chat(100'000, false)));
  ASSERT_TRUE(generator_->wait_for_live(2));
  whole.close_sending_side();
  ASSERT_TRUE(generator_->wait_for_live(1)) << "so does a running request that is not streamed";
  busy2.close();
  ASSERT_TRUE(generator_->wait_for_live(0));
  EXPECT_EQ(generator_->num_aborted(), 5);
  EXPECT_EQ(ask(Client::get("/health")).json()["requests"], 0);
}

TEST_F(ServerLimitsTest, TwoHundredClientsThatLeaveLeaveNothingBehind) {
  fake_.step = milliseconds(2);
  fake_.max_seq_len = 1'000'000;
  start();
  for (int i = 0; i < 200; ++i) {
    Client client(server_->port());
    client.send(Client::post("/v1/chat/completions", chat(100'000, i % 2 == 0)));
    if (i % 4 == 0) client.read_until("\n\n");
  }
  EXPECT_TRUE(generator_->wait_for_live(0));
  Reply health;
  for (int i = 0; i < 1000; ++i) {
    health = ask(Client::get("/health"));
    if (health.json()["requests"] == 0) break;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(health.json()["requests"], 0);
}

TEST_F(ServerLimitsTest, AClientThatLeavesWhileItsPromptIsTokenizedIsAbortedToo) {
  fake_.submit_time = milliseconds(100);
  fake_.max_seq_len = 1'000'000;
  start();
  {
    Client client(server_->port());
    client.send(Client::post("/v1/chat/completions", chat(100'000, false)));
    std::this_thread::sleep_for(milliseconds(20));
  }
  for (int i = 0; i < 2000 && generator_->submitted().empty(); ++i)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(generator_->submitted().size(), 1U);
  EXPECT_TRUE(generator_->wait_for_live(0));
}

TEST_F(ServerLimitsTest, FiftyStreamsAtOnceEachGetTheirOwnText) {
  start();
  std::atomic<int> num_right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 50; ++i)
    threads.emplace_back([&, i] {
      const Reply reply = ask(Client::post("/v1/chat/completions", chat(100 + i, true)));
      if (reply.complete && streamed_text(reply.body) == expected_text(100 + i)) ++num_right;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(num_right, 50);
}

TEST_F(ServerLimitsTest, HealthAnswersWhileThreeHundredStreamsAreReadSlowlyOrNotAtAll) {
  fake_.step = milliseconds(10);  // streams outlast the test, under sanitizers, too
  start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port(), /*receive_buffer_bytes=*/4096));
    clients.back()->send(Client::post("/v1/chat/completions", chat(2000, true)));
  }
  ASSERT_TRUE(generator_->wait_for_live(300));
  std::atomic<bool> done = false;
  std::thread reader([&] {  // the other half reads nothing
    while (!done.load())
      for (int i = 0; i < 150 && !done.load(); ++i) clients[i]->read_until("\n\n");
  });
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(ask(Client::get("/health")).status, 200);
    EXPECT_EQ(ask(Client::post("/v1/chat/completions", chat(2, false))).status, 200);
    // Milliseconds on a machine of its own.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  }
  done.store(true);
  reader.join();
}

TEST_F(ServerLimitsTest, AClientThatDoesNotReadIsAbortedAndDisturbsNobody) {
  fake_.padding = std::string(20'000, 'x');
  fake_.max_seq_len = 1'000'000;
  start();
  Client deaf(server_->port(), /*receive_buffer_bytes=*/4096);
  deaf.send(Client::post("/v1/chat/completions", chat(900'000, true)));
  ASSERT_TRUE(generator_->wait_for_live(1));
  const auto begin = steady_clock::now();
  while (generator_->num_live() > 0 && steady_clock::now() - begin < milliseconds(8000)) {
    const auto asked = steady_clock::now();
    ASSERT_EQ(ask(Client::get("/health")).status, 200);
    ASSERT_LT(steady_clock::now() - asked, milliseconds(1000));
  }
  EXPECT_EQ(generator_->num_live(), 0U);
  EXPECT_EQ(generator_->num_aborted(), 1);
}

TEST_F(ServerLimitsTest, AClientThatTakesNothingForTooLongIsClosed) {
  fake_.padding = std::string(100'000, 'x');
  options_.write_timeout = milliseconds(100);
  options_.max_backlog_bytes = std::size_t{1} << 30;
  start();
  Client deaf(server_->port(), /*receive_buffer_bytes=*/4096);
  deaf.send(Client::post("/v1/chat/completions", chat(120, true)));  // 12 MB
  for (int i = 0; i < 2000 && generator_->submitted().empty(); ++i)
    std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(generator_->wait_for_live(0));
  const auto begin = steady_clock::now();
  while (steady_clock::now() - begin < milliseconds(10'000)) {
    const Reply health = ask(Client::get("/health"));
    if (health.status == 200 && health.json()["requests"] == 0) return;
    std::this_thread::sleep_for(milliseconds(1));
  }
  FAIL() << "the connection is still held";
}

TEST_F(ServerLimitsTest, ConnectionsAndRequestsOverTheLimitAreToldSo) {
  options_.max_connections = 3;
  options_.max_requests = 1;
  fake_.step = milliseconds(2);
  fake_.max_seq_len = 1'000'000;
  start();
  Client streaming(server_->port());
  streaming.send(Client::post("/v1/chat/completions", chat(100'000, true)));
  ASSERT_TRUE(generator_->wait_for_live(1));
  Client second(server_->port()), third(server_->port());
  const Reply busy = second.ask(Client::post("/v1/chat/completions", chat(1, false)));
  EXPECT_EQ(busy.status, 429);
  EXPECT_TRUE(busy.has_header("Retry-After: 1"));
  EXPECT_EQ(busy.json()["error"]["code"], "overloaded");
  ASSERT_EQ(third.ask(Client::get("/v1")).status, 200);
  const Reply refused = ask(Client::get("/v1"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.has_header("Connection: close"));
  third.close();
  int status = 0;  // a place is free again, soon
  for (int i = 0; i < 1000 && status != 200; ++i) {
    status = ask(Client::get("/v1")).status;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(status, 200);
}

TEST_F(ServerLimitsTest, IdleConnectionsAreClosedAfterAWhile) {
  options_.idle_timeout = milliseconds(50);
  start();
  Client idle(server_->port()), half(server_->port());
  half.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_TRUE(idle.at_end());
  EXPECT_TRUE(half.at_end());
}

TEST_F(ServerLimitsTest, StopLetsRunningRequestsEnd) {
  fake_.step = milliseconds(3);
  start();
  Client stream(server_->port()), whole(server_->port()), idle(server_->port());
  ASSERT_EQ(idle.ask(Client::get("/v1")).status, 200);
  stream.send(Client::post("/v1/chat/completions", chat(60, true)));
  whole.send(Client::post("/v1/chat/completions", chat(60, false)));
  ASSERT_TRUE(generator_->wait_for_live(2));
  const std::uint16_t port = server_->port();
  std::thread stopping([&] { server_->stop(); });
  EXPECT_TRUE(idle.at_end()) << "idle connections are closed at once";
  EXPECT_EQ(Client(port).ask(Client::post("/v1/chat/completions", chat(1, false))).status, 503)
      << "new ones are turned away";
  EXPECT_EQ(streamed_text(stream.read_reply().body), expected_text(60));
  const Reply reply = whole.read_reply();
  EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], expected_text(60));
  EXPECT_TRUE(reply.has_header("Connection: close"));
  stopping.join();
  EXPECT_FALSE(Client(port).connected());
  EXPECT_EQ(generator_->num_aborted(), 0);
}

TEST_F(ServerLimitsTest, StopEndsWhatRunsTooLongWithAnError) {
  fake_.step = milliseconds(1);
  fake_.max_seq_len = 1'000'000;
  start();
  Client stream(server_->port()), whole(server_->port());
  stream.send(Client::post("/v1/chat/completions", chat(900'000, true)));
  whole.send(Client::post("/v1/chat/completions", chat(900'000, false)));
  ASSERT_TRUE(generator_->wait_for_live(2));
  const auto begin = steady_clock::now();
  std::thread patient([&] { server_->stop(milliseconds(60'000)); });
  std::this_thread::sleep_for(milliseconds(50));
  server_->stop(milliseconds(50));  // hastens the other
  patient.join();
  EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
  const Reply streamed = stream.read_reply();
  EXPECT_TRUE(streamed.complete);
  EXPECT_NE(streamed.body.find("the server is shutting down"), std::string::npos);
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
  const Reply refused = whole.read_reply();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["message"], "the server is shutting down");
  EXPECT_TRUE(generator_->wait_for_live(0));
}

TEST_F(ServerLimitsTest, AServerMayGoWhileItsRequestsRun) {
  fake_.step = milliseconds(1);
  fake_.max_seq_len = 1'000'000;
  fake_.submit_time = milliseconds(20);
  start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(Client::post("/v1/chat/completions", chat(900'000, i % 2 == 0)));
  }
  for (int i = 0; i < 2000 && generator_->num_live() < 3; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  server_.reset();  // some run, some are being tokenized, some wait for a worker
  EXPECT_TRUE(generator_->wait_for_live(0));
}

}  // namespace
}  // namespace minisgl
