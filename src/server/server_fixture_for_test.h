// A plain blocking HTTP client and a running server, for the server's tests: what the client sees
// is what was sent.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "minisgl/server.h"
#include "server/fake_generator_for_test.h"
#include "server/json.h"

namespace minisgl::testing_util {

struct Reply {
  int status = 0;
  std::string head;
  std::string body;  // chunks joined
  bool complete = false;
  Json json() const { return Json::parse(body); }
  bool has_header(const std::string& line) const {
    return head.find(line + "\r\n") != std::string::npos;
  }
};

class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer_bytes > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    const timeval ten_seconds{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &ten_seconds, sizeof ten_seconds);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void close_sending_side() { ::shutdown(fd_, SHUT_WR); }

  void send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
  static std::string post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string get(const std::string& path, const std::string& method = "GET") {
    return method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  Reply ask(const std::string& request) {
    send(request);
    return read_reply();
  }

  // Up to and including `mark`; shorter when the connection ends or ten seconds pass.
  std::string read_until(const std::string& mark) {
    std::size_t end = 0;
    while ((end = received_.find(mark)) == std::string::npos && receive()) {
    }
    const std::size_t size = end == std::string::npos ? received_.size() : end + mark.size();
    std::string result = received_.substr(0, size);
    received_.erase(0, size);
    return result;
  }
  Reply read_reply(bool has_body = true) {
    Reply reply;
    reply.head = read_until("\r\n\r\n");
    if (reply.head.size() < 12) return reply;
    reply.status = std::stoi(reply.head.substr(9, 3));
    if (!has_body || reply.status == 204) {
      reply.complete = true;
    } else if (reply.has_header("Transfer-Encoding: chunked")) {
      for (;;) {
        const std::string size_line = read_until("\r\n");
        if (!size_line.ends_with("\r\n")) return reply;
        const std::size_t size = std::stoul(size_line, nullptr, 16);
        const std::string data = read_exactly(size + 2);
        if (data.size() != size + 2) return reply;
        if (size == 0) break;
        reply.body += data.substr(0, size);
      }
      reply.complete = true;
    } else if (const std::size_t at = reply.head.find("Content-Length: ");
               at != std::string::npos) {
      const std::size_t size = std::stoul(reply.head.substr(at + 16));
      reply.body = read_exactly(size);
      reply.complete = reply.body.size() == size;
    } else {
      while (receive()) {
      }
      reply.body.swap(received_);
      reply.complete = true;
    }
    return reply;
  }
  bool at_end() { return received_.empty() && !receive(); }

 private:
  std::string read_exactly(std::size_t size) {
    while (received_.size() < size && receive()) {
    }
    std::string result = received_.substr(0, size);
    received_.erase(0, size);
    return result;
  }
  bool receive() {
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string received_;
};

// The texts of a chat stream's chunks, joined.
inline std::string streamed_text(const std::string& events) {
  std::string text;
  for (std::size_t at = 0; (at = events.find("data: {", at)) != std::string::npos; ++at) {
    const Json event = Json::parse(events.substr(at + 6, events.find('\n', at) - at - 6));
    if (event.contains("choices") && !event["choices"].empty())
      text += event["choices"][0]["delta"].value("content", "");
  }
  return text;
}

inline std::string expected_text(int num_tokens) {
  std::string text;
  for (int i = 0; i < num_tokens; ++i) text += std::to_string(i) + ",";
  return text;
}

inline std::string chat(int max_tokens, bool stream) {
  return R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":)" +
         std::to_string(max_tokens) + R"(,"stream":)" + (stream ? "true" : "false") + "}";
}

/// A server on a free port with a generator that needs no model.
class ServerFixture : public testing::Test {
 protected:
  ServerFixture() {
    log::set_level(log::Level::kError);
    options_.port = 0;
  }
  void start() {
    generator_ = std::make_unique<FakeGenerator>(fake_);
    server_ = std::make_unique<Server>(*generator_, options_);
    server_->start();
  }
  Reply ask(const std::string& request) { return Client(server_->port()).ask(request); }

  FakeGenerator::Options fake_;
  ServerOptions options_;
  std::unique_ptr<FakeGenerator> generator_;
  std::unique_ptr<Server> server_;
};

}  // namespace minisgl::testing_util
