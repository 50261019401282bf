// One client's connection: HTTP/1.1 requests in, replies and streams out.

#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "minisgl/server.h"
#include "server/access_control.h"
#include "server/access_log.h"
#include "server/byte_stream.h"
#include "server/http_head.h"
#include "server/http_message.h"
#include "server/mailbox.h"
#include "server/routes.h"

namespace minisgl {

/// What the connections of a server share. Belongs to the I/O thread, except where its members say
/// otherwise.
struct ConnectionContext {
  Routes& routes;
  boost::asio::thread_pool& workers;
  const ServerOptions& options;
  const ApiKeys& keys;
  const CorsPolicy& cors;
  Mailbox& mailbox;
  boost::asio::ssl::context* tls = nullptr;  ///< null: plain HTTP
  bool draining = false;                     ///< requests that come now are turned away
};

/// Answers one request after the other (pipelined ones wait in the socket and a bounded buffer).
/// While an answer is generated it keeps reading, so it learns at once that the client has gone: an
/// end of file counts as that, also when only the client's sending side was closed.
///
/// Thread safety: everything happens on the thread of the stream's io_context.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  /// `context` must outlive the connection.
  Connection(ByteStream::Socket socket, ConnectionContext& context);

  /// Runs until the connection is closed.
  boost::asio::awaitable<void> run();
  /// In place of run(): answers with status 503, whatever is asked, and closes.
  boost::asio::awaitable<void> refuse();

  /// There is something to take from the answer that is under way.
  void on_update();
  /// Closes if the client had to do something before `now` and did not.
  void check_deadline(Clock::time_point now) {
    if (now >= deadline_) close();
  }
  /// Closes after the reply that is under way; at once if it waits for another request. A first
  /// request may be on its way, or half read, and is answered: its client would not ask again.
  void close_when_idle() {
    fields_.keep_alive = false;
    if (between_requests_) close();
  }
  /// Ends the answer that is under way with an error.
  void end_answer();
  /// Closes now; what runs is aborted.
  void close();
  /// A whole request was read and its reply is not complete.
  bool is_serving() const { return serving_; }

 private:
  struct Parser;

  boost::asio::awaitable<bool> shake_hands();
  boost::asio::awaitable<void> serve_next();
  boost::asio::awaitable<bool> read(Parser& parser);
  boost::asio::awaitable<bool> read_body(Parser& parser);
  boost::asio::awaitable<void> answer_broken_request(boost::system::error_code error);
  boost::asio::awaitable<void> refuse_request(HttpReply reply);
  boost::asio::awaitable<void> serve(const HttpRequest& request);
  boost::asio::awaitable<void> send_outcome(Routes::Outcome outcome);
  boost::asio::awaitable<void> send_reply(HttpReply reply);
  boost::asio::awaitable<void> send_answer(RunningAnswer& answer);
  boost::asio::awaitable<void> send_events(Exchange& exchange);
  boost::asio::awaitable<void> write(std::string bytes);
  boost::asio::awaitable<void> wait();
  boost::asio::awaitable<void> stop_watching();
  boost::asio::awaitable<void> say_goodbye();
  boost::asio::awaitable<void> drain();

  void begin_request(const Parser& parser);
  void pump();
  void flush();
  void start_write();
  void finish_write(boost::system::error_code error, std::size_t num_bytes);
  void watch();
  void wake() { wake_.cancel(); }
  void arm(std::chrono::milliseconds timeout) { deadline_ = Clock::now() + timeout; }
  void disarm() { deadline_ = Clock::time_point::max(); }

  ByteStream stream_;
  ConnectionContext& context_;
  const ServerOptions& options_;
  const std::string client_;  // address

  boost::beast::flat_buffer buffer_;  // bytes received and not yet parsed
  boost::asio::steady_timer wake_;    // cancelled to resume wait()
  Clock::time_point deadline_ = Clock::time_point::max();
  boost::asio::cancellation_signal stop_watch_;

  // Of the request that is being served.
  AccessRecord record_;
  Clock::time_point arrival_{};
  HeadFields fields_;
  bool is_head_ = false;

  std::string out_;  // bytes that were not sent yet, after the first out_sent_
  std::size_t out_sent_ = 0;
  Exchange* streaming_ = nullptr;  // whose events are being sent
  bool all_taken_ = false;         // its last event is in out_

  bool serving_ = false;
  bool served_ = false;            // a request, at least
  bool between_requests_ = false;  // nothing of the next one has come
  bool writing_ = false;           // a write is outstanding
  bool watching_ = false;          // a read is outstanding
  bool want_watch_ = false;
  bool gone_ = false;    // the client has, or close() was called
  bool ending_ = false;  // end_answer() was called
};

}  // namespace minisgl
