#include "minisgl/server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "metrics/exposition.h"
#include "minisgl/error.h"
#include "server/access_control.h"
#include "server/http_connection.h"
#include "server/mailbox.h"
#include "server/routes.h"
#include "server/tls.h"

namespace minisgl {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

// What a client has for its last bytes once its answer was ended by stop().
constexpr milliseconds kFlushTime{1000};
// Connections over the limit that are told so at a time; beyond it they are just closed.
constexpr std::size_t kMaxRefused = 64;
// Pause after the system refused a connection (usually: no file descriptors left).
constexpr milliseconds kAcceptPause{100};

[[noreturn]] void cannot_listen(const ServerOptions& options, const error_code& error) {
  if (error == asio::error::address_in_use)
    throw Error(
        fmt::format("port {} is in use on {}; stop the program that has it or choose another "
                    "with --port (0: any free one)",
                    options.port, options.host));
  if (error == asio::error::access_denied)
    throw Error(fmt::format("not allowed to listen on port {}; choose one above 1023 with --port",
                            options.port));
  throw Error(
      fmt::format("cannot listen on {} port {}: {}", options.host, options.port, error.message()));
}

/// Throws Error for options that make no sense; returns them.
ServerOptions checked(ServerOptions options) {
  if (!metrics::is_metric_name(options.metrics_prefix))
    throw Error(
        fmt::format("--metrics-prefix is \"{}\": a name has letters, digits, \"_\" and \":\", "
                    "and no digit first",
                    options.metrics_prefix));
  if (options.tls_certificate.empty() != options.tls_key.empty())
    throw Error("TLS needs both --tls-cert and --tls-key");
  return options;
}

/// Null without a certificate.
std::unique_ptr<asio::ssl::context> tls_context(const ServerOptions& options) {
  if (options.tls_certificate.empty()) return nullptr;
  return make_tls_context(options.tls_certificate, options.tls_key);
}

/// How often deadlines are looked at: a small part of the shortest.
milliseconds sweep_period(const ServerOptions& options) {
  const milliseconds shortest = std::min({options.idle_timeout, options.header_timeout,
                                          options.request_timeout, options.write_timeout});
  return std::clamp(shortest / 8, milliseconds(5), milliseconds(250));
}

/// Listens where `options` says.
tcp::acceptor open_acceptor(asio::io_context& io, const ServerOptions& options) {
  error_code error;
  tcp::resolver resolver(io);
  const bool in_brackets = options.host.starts_with('[') && options.host.ends_with(']');
  const std::string host =
      in_brackets ? options.host.substr(1, options.host.size() - 2) : options.host;
  const auto found =
      resolver.resolve(host, std::to_string(options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty())
    throw Error(
        fmt::format("no network address belongs to the host \"{}\" ({}); give one of this "
                    "machine's with --host",
                    options.host, error.message()));
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  // "::" is every interface, those of IPv4 included.
  if (!error && endpoint.address().is_v6())
    acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) cannot_listen(options, error);
  return acceptor;
}

// The application decides which of its threads handles signals: never one of ours.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

class Server::Impl {
 public:
  Impl(Generator& generator, ServerOptions options)
      : options_(checked(std::move(options))),
        keys_(options_.api_keys),
        cors_(options_.cors_origins),
        tls_(tls_context(options_)),
        routes_(generator, options_) {}
  ~Impl() { stop(milliseconds(0)); }

  void start();
  std::uint16_t port() const { return port_; }
  milliseconds stop_deadline() const { return options_.stop_deadline; }
  void stop(milliseconds deadline);

 private:
  void listen();
  void run();
  asio::awaitable<void> accept();
  asio::awaitable<void> sweep();
  void adopt(tcp::socket socket);
  void begin_stop(milliseconds deadline);
  void finish_if_drained();
  void stop_accepting();
  void end_answers();
  void close_all();

  const ServerOptions options_;
  const ApiKeys keys_;
  const CorsPolicy cors_;
  const std::unique_ptr<asio::ssl::context> tls_;
  Routes routes_;
  // Destroyed in reverse: the workers first, they post to io_.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_pause_{io_};
  asio::steady_timer stop_timer_{io_};
  asio::steady_timer sweep_timer_{io_};
  Mailbox mailbox_{io_};
  std::optional<ConnectionContext> context_;           // I/O thread
  std::set<std::shared_ptr<Connection>> connections_;  // I/O thread
  std::size_t num_refused_ = 0;                        // I/O thread
  bool finished_ = false;                              // I/O thread: nothing begins any more
  std::atomic<std::uint16_t> port_{0};
  std::optional<asio::thread_pool> workers_;
  std::mutex thread_mutex_;  // guards thread_
  std::thread thread_;
};

void check_can_listen(const ServerOptions& options) {
  asio::io_context io;
  open_acceptor(io, checked(options));
  tls_context(options);
  const ApiKeys keys(options.api_keys);
  const CorsPolicy cors(options.cors_origins);
}

void Server::Impl::start() {
  const std::lock_guard lock(thread_mutex_);
  if (port_ != 0) throw Error("a server can be started only once");
  listen();
  const SignalsBlocked blocked;
  workers_.emplace(static_cast<std::size_t>(std::max(1, options_.num_workers)));
  context_.emplace(ConnectionContext{.routes = routes_,
                                     .workers = *workers_,
                                     .options = options_,
                                     .keys = keys_,
                                     .cors = cors_,
                                     .mailbox = mailbox_,
                                     .tls = tls_.get()});
  asio::co_spawn(io_, accept(), asio::detached);
  asio::co_spawn(io_, sweep(), asio::detached);
  thread_ = std::thread([this] { run(); });
}

void Server::Impl::listen() {
  acceptor_ = open_acceptor(io_, options_);
  port_ = acceptor_.local_endpoint().port();
}

void Server::Impl::run() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& e) {
      log::error("a connection failed: {}", e.what());
    }
  }
}

asio::awaitable<void> Server::Impl::accept() {
  while (acceptor_.is_open()) {
    error_code error;
    auto accepting = acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
    tcp::socket socket = co_await std::move(accepting);
    if (!error) {
      try {
        adopt(std::move(socket));
      } catch (const std::exception& e) {
        log::error("a new connection failed: {}", e.what());
      }
    } else if (acceptor_.is_open() && error != asio::error::connection_aborted) {
      log::warning("cannot accept a connection: {}", error.message());
      accept_pause_.expires_after(kAcceptPause);
      auto pausing = accept_pause_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      co_await std::move(pausing);
    }
  }
}

// One timer for the deadlines of all connections: setting one is then a mere assignment.
asio::awaitable<void> Server::Impl::sweep() {
  const milliseconds period = sweep_period(options_);
  while (!finished_) {
    error_code ignored;
    sweep_timer_.expires_after(period);
    auto pausing = sweep_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_await std::move(pausing);
    const auto now = Connection::Clock::now();
    for (const auto& connection : connections_) connection->check_deadline(now);
  }
}

void Server::Impl::adopt(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);  // a token must not wait for the next
  const bool refused = connections_.size() - num_refused_ >= options_.max_connections;
  if (finished_ || (refused && num_refused_ >= kMaxRefused)) return;
  auto connection = std::make_shared<Connection>(std::move(socket), *context_);
  connections_.insert(connection);
  num_refused_ += refused ? 1 : 0;
  auto on_end = [this, connection, refused](const std::exception_ptr& failure) {
    connection->close();
    connections_.erase(connection);
    num_refused_ -= refused ? 1 : 0;
    if (context_->draining) finish_if_drained();
    if (failure) std::rethrow_exception(failure);
  };
  asio::co_spawn(io_, refused ? connection->refuse() : connection->run(), std::move(on_end));
}

void Server::Impl::stop(milliseconds deadline) {
  asio::post(io_, [this, deadline] { begin_stop(deadline); });
  const std::lock_guard lock(thread_mutex_);
  if (!thread_.joinable()) return;
  thread_.join();  // run() returns when nothing is left to do
  workers_->join();
}

void Server::Impl::begin_stop(milliseconds deadline) {
  const bool is_first = !std::exchange(context_->draining, true);
  for (const auto& connection : connections_) connection->close_when_idle();
  finish_if_drained();
  if (finished_) return;
  const auto time = std::chrono::steady_clock::now() + deadline;
  if (!is_first && stop_timer_.expiry() <= time) return;
  stop_timer_.expires_at(time);
  stop_timer_.async_wait([this](const error_code& error) {
    if (!error) end_answers();
  });
}

// Until then the server tells those who ask that it is stopping.
void Server::Impl::finish_if_drained() {
  const bool serving = std::any_of(connections_.begin(), connections_.end(),
                                   [](const auto& c) { return c->is_serving(); });
  if (serving) return;
  stop_accepting();
  close_all();
  if (connections_.empty()) stop_timer_.cancel();
}

void Server::Impl::stop_accepting() {
  if (std::exchange(finished_, true)) return;
  error_code ignored;
  acceptor_.close(ignored);
  accept_pause_.cancel();
  sweep_timer_.cancel();
}

void Server::Impl::end_answers() {
  stop_accepting();
  // The last connection may have ended after the timer expired and before this call.
  if (connections_.empty()) return;
  for (const auto& connection : connections_) connection->end_answer();
  stop_timer_.expires_after(kFlushTime);
  stop_timer_.async_wait([this](const error_code& error) {
    if (!error) close_all();
  });
}

void Server::Impl::close_all() {
  for (const auto& connection : connections_) connection->close();
}

Server::Server(Generator& generator, ServerOptions options)
    : impl_(std::make_unique<Impl>(generator, std::move(options))) {}
Server::~Server() = default;
void Server::start() { impl_->start(); }
std::uint16_t Server::port() const { return impl_->port(); }
void Server::stop(std::chrono::milliseconds deadline) { impl_->stop(deadline); }
void Server::stop() { impl_->stop(impl_->stop_deadline()); }

}  // namespace minisgl
