// The HTTP server: OpenAI's protocol over a Generator.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace minisgl {

class Generator;

struct ServerOptions {
  std::string host = "127.0.0.1";  ///< a numeric address or a name; "0.0.0.0": every interface
  std::uint16_t port = 1919;       ///< 0: any free one, see Server::port()
  /// The model's id in replies; empty: Generator::model_name().
  std::string served_name;
  std::vector<std::string> aliases = {};    ///< further ids that requests may ask for it by
  std::string metrics_prefix = "minisgl:";  ///< begins every name of /metrics; vLLM's is "vllm:"
  std::vector<std::string> api_keys = {};   ///< without one, everybody may ask
  /// Origins of web pages that may use the server, such as "https://chat.example.org"; "*": all.
  std::vector<std::string> cors_origins = {};
  std::string tls_certificate = {};  ///< PEM file with its chain; with tls_key: HTTPS
  std::string tls_key = {};          ///< PEM file
  bool accept_any_model = false;     ///< answer requests for other models too, under served_name

  std::size_t max_body_bytes = std::size_t{32} << 20;  ///< longer bodies get status 413
  std::size_t max_connections = 4096;                  ///< further ones get status 503
  std::size_t max_requests = 4096;  ///< generating at once, queued included; further: status 429
  std::size_t max_queued = 2048;    ///< answers that wait for the engine; further: status 429
  /// What may wait for a client that does not read its stream (the kernel's socket buffers come on
  /// top); at the limit its request is aborted and the connection closed.
  std::size_t max_backlog_bytes = std::size_t{1} << 20;
  int num_workers = 2;  ///< threads that parse, render and tokenize

  std::chrono::milliseconds idle_timeout{120'000};     ///< for a request, or its next body bytes
  std::chrono::milliseconds header_timeout{30'000};    ///< for all headers, after their first byte
  std::chrono::milliseconds request_timeout{600'000};  ///< for the whole body
  std::chrono::milliseconds write_timeout{60'000};     ///< without a byte accepted by the client
  std::chrono::milliseconds stop_deadline{5'000};      ///< see Server::stop()
};

/// Throws what Server and Server::start() would throw: so that a program knows before it loads a
/// model.
void check_can_listen(const ServerOptions& options);

/// Serves from one I/O thread and a few workers of its own. A client that closes its connection, or
/// its sending side only, aborts what it asked for. All members may be called by any thread.
class Server {
 public:
  /// `generator` must outlive the server.
  Server(Generator& generator, ServerOptions options);
  /// Stops without waiting for running requests.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Listens and returns. Throws Error, naming what to do, when the address cannot be had.
  void start();

  /// The port that it listens on; 0 before start().
  std::uint16_t port() const;

  /// Lets running requests end for up to `deadline`, ends the rest with an error (a last event in a
  /// stream, status 503 otherwise), and returns when all connections are closed. Meanwhile new
  /// requests get status 503, /health among them. A second call with a shorter deadline hastens the
  /// first.
  void stop(std::chrono::milliseconds deadline);
  void stop();  ///< with ServerOptions::stop_deadline

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
