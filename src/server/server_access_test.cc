// Keys, origins, request ids, limits and deadlines, over real sockets.

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>

#include "minisgl/error.h"
#include "minisgl/server.h"
#include "server/server_fixture_for_test.h"

namespace minisgl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using namespace testing_util;

class ServerAccessTest : public ServerFixture {
 protected:
  std::string error_of_start() {
    try {
      start();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

std::string header_of(const Reply& reply, const std::string& name) {
  const std::size_t at = reply.head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 4;
  return reply.head.substr(begin, reply.head.find("\r\n", begin) - begin);
}

TEST_F(ServerAccessTest, WithKeysOnlyMonitoringIsOpen) {
  options_.api_keys = {"sk-one", "sk-two"};
  start();
  const std::string path = "/v1/chat/completions";
  const Reply refused = ask(Client::post(path, chat(2, true)));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(header_of(refused, "WWW-Authenticate"), "Bearer");
  const Reply other_api = ask(Client::post("/v1/messages", "{}"));
  EXPECT_EQ(other_api.status, 401);
  EXPECT_EQ(other_api.json()["type"], "error") << "in the words of Anthropic's API";
  EXPECT_EQ(other_api.json()["error"]["type"], "authentication_error");
  EXPECT_EQ(ask(Client::post(path, chat(2, true), "Authorization: Bearer sk-three\r\n")).status,
            401);
  EXPECT_EQ(ask(Client::post(path, chat(2, true), "Authorization: Bearer sk-two\r\n")).status, 200);
  EXPECT_EQ(ask(Client::post(path, chat(2, true), "x-api-key: sk-one\r\n")).status, 200);
  for (const char* open : {"/health", "/metrics", "/version"})
    EXPECT_EQ(ask(Client::get(open)).status, 200) << open;
  for (const char* guarded : {"/v1/models", "/v1", "/nothing", "/health?x", "//health"})
    EXPECT_EQ(ask(Client::get(guarded)).status, std::string(guarded) == "/health?x" ? 200 : 401)
        << guarded;
  EXPECT_TRUE(generator_->wait_for_live(0));
  EXPECT_EQ(generator_->submitted().size(), 2U);
}

TEST_F(ServerAccessTest, ABodyWithoutAKeyIsNotWaitedFor) {
  options_.api_keys = {"sk-one"};
  start();
  Client client(server_->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 1000000\r\n\r\n");
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 401);
  EXPECT_TRUE(reply.has_header("Connection: close"));
}

TEST_F(ServerAccessTest, PagesOfListedOriginsMayReadAnswers) {
  options_.cors_origins = {"http://localhost:3000"};
  options_.api_keys = {"k"};
  start();
  const std::string origin = "Origin: http://localhost:3000\r\n";
  const Reply preflight = ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + origin +
                              "Access-Control-Request-Method: POST\r\n"
                              "Access-Control-Request-Headers: authorization\r\n\r\n");
  EXPECT_EQ(preflight.status, 204) << "it carries no key";
  EXPECT_EQ(header_of(preflight, "Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(header_of(preflight, "Access-Control-Allow-Headers"), "authorization");
  EXPECT_EQ(header_of(preflight, "Access-Control-Allow-Methods"), "GET, POST, OPTIONS");
  const Reply stream = ask(
      Client::post("/v1/chat/completions", chat(2, true), origin + "Authorization: Bearer k\r\n"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(header_of(stream, "Access-Control-Allow-Origin"), "http://localhost:3000");
  const Reply refused = ask(Client::post("/v1/chat/completions", chat(2, true), origin));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(header_of(refused, "Access-Control-Allow-Origin"), "http://localhost:3000")
      << "or the page sees a network error";
  const Reply other = ask(Client::post("/v1/chat/completions", chat(2, true),
                                       "Origin: https://x.example\r\nAuthorization: Bearer k\r\n"));
  EXPECT_EQ(header_of(other, "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(header_of(other, "Vary"), "Origin");
}

TEST_F(ServerAccessTest, EveryReplyNamesItsRequest) {
  start();
  Client client(server_->port());
  const std::string id = "X-Request-Id: my-id-7\r\n";
  EXPECT_EQ(header_of(client.ask(Client::post("/v1/chat/completions", chat(2, true), id)),
                      "X-Request-Id"),
            "my-id-7");
  EXPECT_EQ(header_of(client.ask(Client::post("/v1/nope", "{}", id)), "X-Request-Id"), "my-id-7");
  const std::string first = header_of(client.ask(Client::get("/version")), "X-Request-Id");
  const std::string second = header_of(client.ask(Client::get("/version")), "X-Request-Id");
  EXPECT_EQ(first.size(), 32U);
  EXPECT_NE(first, second);
  EXPECT_EQ(header_of(client.ask("nonsense\r\n\r\n"), "X-Request-Id").size(), 32U);
}

TEST_F(ServerAccessTest, AFullQueueAsksForPatience) {
  fake_.step = milliseconds(2);
  fake_.max_seq_len = 1'000'000;
  fake_.max_running = 1;
  options_.max_queued = 1;
  start();
  Client running(server_->port()), queued(server_->port());
  running.send(Client::post("/v1/chat/completions", chat(100'000, true)));
  ASSERT_TRUE(generator_->wait_for_live(1));
  queued.send(Client::post("/v1/chat/completions", chat(100'000, true)));
  ASSERT_TRUE(generator_->wait_for_live(2));
  const Reply busy = ask(Client::post("/v1/chat/completions", chat(1, false)));
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(header_of(busy, "Retry-After"), "1");
  EXPECT_EQ(busy.json()["error"]["type"], "rate_limit_error");
  EXPECT_EQ(busy.json()["error"]["code"], "overloaded");
  queued.close();
  ASSERT_TRUE(generator_->wait_for_live(1));
  Client next(server_->port());
  next.send(Client::post("/v1/chat/completions", chat(1, false)));
  ASSERT_TRUE(generator_->wait_for_live(2)) << "there is room again";
}

TEST_F(ServerAccessTest, HeadersThatTrickleInAreCutOff) {
  options_.header_timeout = milliseconds(100);
  start();
  Client slow(server_->port());
  const auto begin = steady_clock::now();
  slow.send("GET /version HTTP/1.1\r\nHost: x\r\n");
  std::thread dripping([&] {
    for (int i = 0; i < 100; ++i) {
      slow.send("X-" + std::to_string(i) + ": y\r\n");
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  EXPECT_TRUE(slow.at_end());
  EXPECT_LT(steady_clock::now() - begin, milliseconds(900));
  dripping.join();
}

TEST_F(ServerAccessTest, ABodyThatTricklesInIsCutOff) {
  options_.request_timeout = milliseconds(100);
  start();
  Client slow(server_->port());
  const auto begin = steady_clock::now();
  slow.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  std::thread dripping([&] {
    for (int i = 0; i < 100; ++i) {
      slow.send(" ");
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  EXPECT_TRUE(slow.at_end());
  EXPECT_LT(steady_clock::now() - begin, milliseconds(900));
  dripping.join();
}

TEST_F(ServerAccessTest, AnIdleConnectionMayOutliveTheHeaderTimeout) {
  options_.header_timeout = milliseconds(40);
  start();
  Client client(server_->port());
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(milliseconds(120));
    EXPECT_EQ(client.ask(Client::get("/version")).status, 200);
  }
}

TEST_F(ServerAccessTest, WhileItDrainsItTellsThoseWhoAsk) {
  fake_.step = milliseconds(3);
  start();
  Client stream(server_->port());
  stream.send(Client::post("/v1/chat/completions", chat(150, true)));
  ASSERT_TRUE(generator_->wait_for_live(1));
  Client early(server_->port());  // whose request comes when the server has begun to stop
  Client half(server_->port());
  const std::string request = Client::post("/v1/chat/completions", chat(1, false));
  half.send(request.substr(0, request.size() - 5));
  Client idle(server_->port());
  idle.send(Client::get("/version"));
  EXPECT_EQ(idle.read_reply().status, 200);
  std::thread stopping([&] { server_->stop(); });
  Reply health;
  for (int i = 0; i < 1000 && health.status != 503; ++i) health = ask(Client::get("/health"));
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["status"], "draining");
  EXPECT_TRUE(health.has_header("Connection: close"));
  EXPECT_TRUE(idle.at_end());
  early.send(Client::get("/health"));
  EXPECT_EQ(early.read_reply().status, 503);
  half.send(request.substr(request.size() - 5));
  EXPECT_EQ(half.read_reply().status, 503);
  const Reply refused = ask(Client::post("/v1/chat/completions", chat(1, false)));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "draining");
  EXPECT_EQ(header_of(refused, "Retry-After"), "1");
  EXPECT_EQ(ask(Client::get("/metrics")).status, 200) << "the last minutes count too";
  EXPECT_EQ(streamed_text(stream.read_reply().body), expected_text(150));
  const std::uint16_t port = server_->port();
  stopping.join();
  EXPECT_FALSE(Client(port).connected());
}

TEST_F(ServerAccessTest, ServesBothProtocolsOfTheInternet) {
  options_.host = "::";
  start();
  EXPECT_EQ(ask(Client::get("/version")).status, 200) << "IPv4";
  server_.reset();
  options_.host = "[::1]";
  start();
  EXPECT_FALSE(Client(server_->port()).connected()) << "::1 is not 127.0.0.1";
}

TEST_F(ServerAccessTest, SettingsThatMakeNoSenseAreRefused) {
  options_.tls_certificate = "/nowhere/cert.pem";
  EXPECT_EQ(error_of_start(), "TLS needs both --tls-cert and --tls-key");
  options_.tls_key = "/nowhere/key.pem";
  EXPECT_EQ(error_of_start(),
            "cannot read --tls-cert /nowhere/cert.pem: No such file or directory");
  const std::string file = testing::TempDir() + "not_a_certificate.pem";
  std::ofstream(file) << "hello\n";
  options_.tls_certificate = options_.tls_key = file;
  EXPECT_TRUE(
      error_of_start().starts_with("--tls-cert " + file + " holds no certificate in PEM form: "))
      << error_of_start();
  options_.tls_certificate = options_.tls_key = "";
  options_.cors_origins = {"localhost"};
  EXPECT_NE(error_of_start().find("--cors-origin \"localhost\" is not an origin"),
            std::string::npos);
}

}  // namespace
}  // namespace minisgl
