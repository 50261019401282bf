// What the server answers, over real sockets.

#include "minisgl/server.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "minisgl/error.h"
#include "server/server_fixture_for_test.h"

namespace minisgl {
namespace {

using namespace testing_util;

class ServerTest : public ServerFixture {};

TEST_F(ServerTest, AnswersAChatAsOneObject) {
  start();
  const Reply reply = ask(Client::post("/v1/chat/completions", chat(3, false)));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.has_header("Content-Type: application/json"));
  EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], "0,1,2,");
  EXPECT_EQ(reply.json()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(reply.json()["id"].get<std::string>().starts_with("chatcmpl-"));
}

TEST_F(ServerTest, StreamsAChatTokenByToken) {
  start();
  const Reply reply = ask(Client::post("/v1/chat/completions", chat(5, true)));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.has_header("Content-Type: text/event-stream; charset=utf-8"));
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(streamed_text(reply.body), expected_text(5));
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, StreamToAnOldClientEndsWithTheConnection) {
  start();
  Client client(server_->port());
  const std::string body = chat(3, true);
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.head.find("Transfer-Encoding"), std::string::npos);
  EXPECT_EQ(streamed_text(reply.body), expected_text(3));
}

TEST_F(ServerTest, SmallEndpoints) {
  start();
  Client client(server_->port());
  EXPECT_EQ(client.ask(Client::get("/v1")).body, R"({"status":"ok"})");
  EXPECT_EQ(client.ask(Client::post("/v1", "")).body, R"({"status":"ok"})");
  EXPECT_EQ(client.ask(Client::get("/health")).json()["status"], "ok");
  EXPECT_EQ(client.ask(Client::get("/health")).json()["total_pages"], 100);
  EXPECT_TRUE(client.ask(Client::get("/version")).json()["version"].is_string());
  const Json models = client.ask(Client::get("/v1/models?x=1")).json();
  EXPECT_EQ(models["data"][0]["id"], "fake/model");
  EXPECT_EQ(client.ask(Client::get("/v1/models/fake/model")).json(), models["data"][0]);
  EXPECT_EQ(client.ask(Client::get("/v1/models/fake%2Fmodel")).json(), models["data"][0]);
  EXPECT_EQ(client.ask(Client::get("/v1/models/other")).status, 404);
  client.send(Client::get("/health", "HEAD"));
  const Reply head = client.read_reply(/*has_body=*/false);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.head.find("Content-Length: 0"), std::string::npos)
      << "the length a GET would have";
  const Reply options = client.ask(Client::get("/health", "OPTIONS"));
  EXPECT_EQ(options.status, 204);
  EXPECT_TRUE(options.has_header("Allow: GET, HEAD, OPTIONS"));
}

TEST_F(ServerTest, AModelMayHaveSeveralNamesAndRoutersLearnItsPath) {
  options_.served_name = "first";
  options_.aliases = {"second"};
  start();
  Client client(server_->port());
  const Json models = client.ask(Client::get("/v1/models")).json()["data"];
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0]["id"], "first");
  EXPECT_EQ(client.ask(Client::get("/v1/models/second")).json(), models[1]);
  const Json info = client.ask(Client::get("/server_info")).json();
  EXPECT_EQ(info["model_path"], "fake/model");
  EXPECT_EQ(info["served_model_name"], "first");
  EXPECT_EQ(info["tp_size"], 1);
  EXPECT_EQ(info["dp_size"], 1);
  EXPECT_TRUE(info["version"].is_string());
}

TEST_F(ServerTest, ErrorsHaveTheirStatusAndOneShapeAndTheConnectionGoesOn) {
  start();
  Client client(server_->port());
  const std::tuple<std::string, int, Json, Json> cases[] = {
      {Client::get("/v1/chat/completions"), 405, nullptr, nullptr},
      {Client::post("/v1/nope", "{}"), 404, nullptr, nullptr},
      {Client::post("/v1/completions", "{\"model\":"), 400, nullptr, nullptr},
      {Client::post("/v1/completions", ""), 400, nullptr, nullptr},
      {Client::post("/v1/completions", "{\"prompt\":\"\xff\xfe\"}"), 400, nullptr, nullptr},
      {Client::post("/v1/completions", R"({"prompt":[1000]})"), 400, "prompt", nullptr},
      {Client::post("/v1/completions", R"({"prompt":"a","model":"x"})"), 404, "model",
       "model_not_found"},
      {Client::post("/v1/completions", R"({"prompt":"","stream":true})"), 400, "prompt", nullptr},
      {Client::post("/v1/completions",
                    R"({"stream":true,"prompt":")" + std::string(4096, 'a') + "\"}"),
       400, "prompt", "context_length_exceeded"},
      {Client::post("/v1/chat/completions", R"({"messages":[]})"), 400, "messages", nullptr},
  };
  for (const auto& [request, status, param, code] : cases) {
    const Reply reply = client.ask(request);
    EXPECT_EQ(reply.status, status) << request;
    EXPECT_TRUE(reply.has_header("Content-Type: application/json"));
    const Json error = reply.json()["error"];
    EXPECT_TRUE(error["message"].is_string());
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], param) << reply.body;
    EXPECT_EQ(error["code"], code) << reply.body;
  }
  EXPECT_EQ(client.ask(Client::post("/v1/chat/completions", chat(2, false))).status, 200);
}

TEST_F(ServerTest, ChoicesOfOnePromptHaveTheirOwnSeedsAndText) {
  start();
  const Json body =
      ask(Client::post("/v1/completions", R"({"prompt":"a","n":3,"seed":7,"max_tokens":2})"))
          .json();
  ASSERT_EQ(body["choices"].size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const std::string s = "s" + std::to_string(7 + i) + ",";
    EXPECT_EQ(body["choices"][i]["text"], "0" + s + "1" + s);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
}

TEST_F(ServerTest, AnEngineErrorIsA500OrAnEventOfTheStream) {
  fake_.fail_after = 2;
  start();
  Client client(server_->port());
  const Reply whole = client.ask(Client::post("/v1/chat/completions", chat(9, false)));
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["message"], "the engine has broken");
  const Reply stream = client.ask(Client::post("/v1/chat/completions", chat(9, true)));
  EXPECT_EQ(streamed_text(stream.body), "0,1,");
  EXPECT_NE(stream.body.find(R"(data: {"error":{"message":"the engine has broken")"),
            std::string::npos);
  EXPECT_TRUE(stream.complete);
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client(server_->port());
  client.send(Client::post("/v1/chat/completions", chat(4, true)) + Client::get("/version") +
              Client::post("/v1/chat/completions", chat(2, false)) + Client::get("/v1"));
  EXPECT_EQ(streamed_text(client.read_reply().body), expected_text(4));
  EXPECT_TRUE(client.read_reply().json().contains("version"));
  EXPECT_EQ(client.read_reply().json()["usage"]["completion_tokens"], 2);
  EXPECT_EQ(client.read_reply().body, R"({"status":"ok"})");
}

TEST_F(ServerTest, AThousandRequestsUseOneConnection) {
  start();
  Client client(server_->port());
  for (int i = 0; i < 1000; ++i) {
    const Reply reply =
        client.ask(i % 2 == 0 ? Client::post("/v1/chat/completions", chat(1, i % 4 == 0))
                              : Client::get("/v1/models"));
    ASSERT_EQ(reply.status, 200) << "request " << i;
    ASSERT_TRUE(reply.complete) << "request " << i;
  }
}

TEST_F(ServerTest, AClientThatExpectsContinueGetsIt) {
  start();
  Client client(server_->port());
  const std::string request =
      Client::post("/v1/chat/completions", chat(1, false), "Expect: 100-continue\r\n");
  const std::size_t body = request.find("\r\n\r\n") + 4;
  client.send(request.substr(0, body));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(request.substr(body));
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(ServerTest, ABodyMayComeInChunks) {
  start();
  Client client(server_->port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.send("8\r\n{\"prompt\r\n");
  client.send("7\r\n\":\"abc\"\r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_reply().json()["usage"]["prompt_tokens"], 3);
}

TEST_F(ServerTest, WhatIsTooLongOrNotHttpIsRefusedAndTheConnectionClosed) {
  options_.max_body_bytes = 100'000;
  start();
  const auto refused = [&](const std::string& request) {
    Client client(server_->port());
    const Reply reply = client.ask(request);
    EXPECT_TRUE(reply.has_header("Connection: close"));
    EXPECT_TRUE(reply.json()["error"]["message"].is_string());
    EXPECT_TRUE(client.at_end());
    return reply.status;
  };
  EXPECT_EQ(refused(Client::post("/v1/completions", std::string(3'000'000, ' '))), 413);
  EXPECT_EQ(refused("POST /v1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n186a1\r\n" +
                    std::string(100'001, ' ')),
            413);
  EXPECT_EQ(refused("GET /v1 HTTP/1.1\r\nX: " + std::string(40'000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(refused("hello\r\n\r\n"), 400);
  EXPECT_EQ(ask(Client::get("/v1")).status, 200);
}

TEST_F(ServerTest, APortInUseIsAnErrorThatSaysWhatToDo) {
  start();
  ServerOptions same = options_;
  same.port = server_->port();
  Server other(*generator_, same);
  try {
    other.start();
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "port " + std::to_string(same.port) +
                  " is in use on 127.0.0.1; stop the program that has it or choose another with "
                  "--port (0: any free one)");
  }
  same.host = "no.such.host.invalid";
  Server nowhere(*generator_, same);
  try {
    nowhere.start();
    FAIL() << "expected Error";
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with(
        "no network address belongs to the host \"no.such.host.invalid\""))
        << e.what();
  }
}

}  // namespace
}  // namespace minisgl
