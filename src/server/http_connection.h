// One client's connection: HTTP/1.1 requests in, replies and streams out.

#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "minisgl/server.h"
#include "server/http_message.h"
#include "server/routes.h"

namespace minisgl {

/// Answers one request after the other (pipelined ones wait in the socket and a bounded buffer).
/// While an answer is generated it keeps reading, so it learns at once that the client has gone: an
/// end of file counts as that, also when only the client's sending side was closed.
///
/// Thread safety: everything happens on the thread of the socket's io_context.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// All references must outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, Routes& routes, boost::asio::thread_pool& workers,
             const ServerOptions& options);

  /// Runs until the connection is closed.
  boost::asio::awaitable<void> run();
  /// In place of run(): answers with status 503, whatever is asked, and closes.
  boost::asio::awaitable<void> refuse();

  /// Closes after the reply that is under way; at once if there is none.
  void close_when_idle();
  /// Ends the answer that is under way with an error.
  void end_answer();
  /// Closes now; what runs is aborted.
  void close();

 private:
  struct Parser;
  struct LogEntry;  // what the access log says

  boost::asio::awaitable<bool> read(Parser& parser);
  boost::asio::awaitable<void> answer_broken_request(boost::system::error_code error);
  boost::asio::awaitable<void> serve(const HttpRequest& request, LogEntry& done);
  boost::asio::awaitable<void> send_reply(const HttpReply& reply, LogEntry& done);
  boost::asio::awaitable<void> send_answer(RunningAnswer& answer, LogEntry& done);
  boost::asio::awaitable<bool> send_events(Exchange& exchange);
  boost::asio::awaitable<bool> write(std::string bytes);
  boost::asio::awaitable<void> wait();
  boost::asio::awaitable<void> stop_watching();
  boost::asio::awaitable<void> drain();

  void write_log(const HttpRequest& request, const LogEntry& done) const;
  void on_update();
  void watch();
  void wake() { wake_.cancel(); }
  void arm(std::chrono::milliseconds timeout);
  void disarm();
  std::string head(int status, std::string_view content_type, const HttpReply* reply) const;

  boost::asio::ip::tcp::socket socket_;
  Routes& routes_;
  boost::asio::thread_pool& workers_;
  const ServerOptions& options_;

  boost::beast::flat_buffer buffer_;  // bytes received and not yet parsed
  boost::asio::steady_timer wake_;    // cancelled to resume wait()
  boost::asio::steady_timer deadline_;
  std::uint64_t deadline_number_ = 0;  // which arm() the deadline belongs to
  boost::asio::cancellation_signal stop_watch_;

  // Of the request that is being served.
  unsigned http_version_ = 11;
  bool is_head_ = false;
  bool keep_alive_ = true;

  Exchange* streaming_ = nullptr;  // whose events are being sent

  bool serving_ = false;   // a whole request was read and its reply is not complete
  bool watching_ = false;  // a read is outstanding
  bool want_watch_ = false;
  bool gone_ = false;    // the client has, or close() was called
  bool ending_ = false;  // end_answer() was called
};

}  // namespace minisgl
