#include "server/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "base/log.h"

// g++ 12 destroys temporaries of a full expression with co_await twice: every awaitable and every
// lambda below has a name, and co_await stands alone in its statement.

namespace minisgl {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMaxHeaderBytes = 32 << 10;
// Beyond so much pipelined input a running request's connection is not watched any more.
constexpr std::size_t kMaxPipelinedBytes = std::size_t{1} << 20;
constexpr std::size_t kReadBytes = 16 << 10;
// A close with unread input makes the kernel reset the connection, which may destroy the reply on
// its way; so input is read and dropped for a while.
constexpr std::chrono::milliseconds kDrainTime{2000};

// In the access log: the client left before its reply was complete.
constexpr int kClientGone = 499;

std::string chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace

struct Connection::Parser : http::request_parser<http::string_body> {};

struct Connection::LogEntry {
  int status = 0;
  double seconds = 0;
  Usage usage;  // if generated
  bool generated = false;
};

Connection::Connection(asio::ip::tcp::socket socket, Routes& routes, asio::thread_pool& workers,
                       const ServerOptions& options)
    : socket_(std::move(socket)),
      routes_(routes),
      workers_(workers),
      options_(options),
      wake_(socket_.get_executor(), Clock::time_point::max()),
      deadline_(socket_.get_executor()) {}

asio::awaitable<void> Connection::run() {
  while (!gone_ && keep_alive_) {
    Parser parser;
    auto reading = read(parser);
    const bool complete = co_await std::move(reading);
    if (!complete) break;
    serving_ = true;
    const auto begin = Clock::now();
    const HttpRequest request{.method = std::string(parser.get().method_string()),
                              .target = std::string(parser.get().target()),
                              .body = std::move(parser.get().body())};
    http_version_ = parser.get().version();
    is_head_ = request.method == "HEAD";
    keep_alive_ = keep_alive_ && parser.get().keep_alive();
    LogEntry done;
    auto serving = serve(request, done);
    co_await std::move(serving);
    serving_ = false;
    done.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    write_log(request, done);
  }
  disarm();
  close();
}

asio::awaitable<void> Connection::refuse() {
  keep_alive_ = false;
  const HttpReply busy =
      error_reply(503, "too many connections; try again later", "", "overloaded");
  LogEntry done;
  auto sending = send_reply(busy, done);
  co_await std::move(sending);
  auto draining = drain();
  co_await std::move(draining);
  close();
}

void Connection::write_log(const HttpRequest& request, const LogEntry& done) const {
  const auto level = request.target == "/health" ? log::Level::kDebug : log::Level::kInfo;
  if (!log::enabled(level)) return;
  const std::string tokens = done.generated ? fmt::format(" {}+{} tokens", done.usage.prompt_tokens,
                                                          done.usage.completion_tokens)
                                            : "";
  log::write(level, fmt::format("{} {} {}{} {:.3f} s", request.method, request.target,
                                gone_ ? kClientGone : done.status, tokens, done.seconds));
}

// False when the connection is to be closed.
asio::awaitable<bool> Connection::read(Parser& parser) {
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(options_.max_body_bytes);
  error_code error;
  arm(options_.idle_timeout);
  auto reading_header = http::async_read_header(socket_, buffer_, parser,
                                                asio::redirect_error(asio::use_awaitable, error));
  co_await std::move(reading_header);
  if (!error && !parser.is_done() &&
      boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    auto writing = write("HTTP/1.1 100 Continue\r\n\r\n");
    const bool written = co_await std::move(writing);
    if (!written) co_return false;
  }
  while (!error && !parser.is_done()) {
    arm(options_.idle_timeout);
    auto reading_body = http::async_read_some(socket_, buffer_, parser,
                                              asio::redirect_error(asio::use_awaitable, error));
    co_await std::move(reading_body);
  }
  disarm();
  if (!error) co_return true;
  const error_code end = http::error::end_of_stream;
  if (!gone_ && error != end && error.category() == end.category()) {
    auto answering = answer_broken_request(error);
    co_await std::move(answering);
  }
  co_return false;
}

asio::awaitable<void> Connection::answer_broken_request(error_code error) {
  HttpReply reply = error_reply(400, "this is not an HTTP/1.1 request: " + error.message());
  if (error == http::error::body_limit)
    reply =
        error_reply(413, fmt::format("the body is longer than {} bytes", options_.max_body_bytes));
  if (error == http::error::header_limit)
    reply = error_reply(431, fmt::format("the headers are longer than {} bytes", kMaxHeaderBytes));
  keep_alive_ = false;
  is_head_ = false;
  LogEntry done;
  auto sending = send_reply(reply, done);
  co_await std::move(sending);
  log::info("a request that is not HTTP, or too long, got {}: {}", reply.status, error.message());
  auto draining = drain();
  co_await std::move(draining);
}

asio::awaitable<void> Connection::serve(const HttpRequest& request, LogEntry& done) {
  // The client may go, and this coroutine with it, while a worker is busy: what they share is not
  // theirs. An answer that nobody collects is aborted by its destructor.
  struct Job {
    HttpRequest request;
    std::optional<Routes::Outcome> outcome;
    bool done = false;  // seen by this thread only
  };
  const auto job = std::make_shared<Job>();
  const auto executor = socket_.get_executor();
  std::function<void()> notify = [weak = weak_from_this(), executor] {
    asio::post(executor, [weak] {
      if (const auto self = weak.lock()) self->on_update();
    });
  };
  if (!Routes::is_slow(request)) {
    job->outcome.emplace(routes_.handle(request, std::move(notify)));
  } else {
    want_watch_ = true;
    watch();
    job->request = request;
    auto work = [job, weak = weak_from_this(), executor, &routes = routes_,
                 notify = std::move(notify)]() mutable {
      job->outcome.emplace(routes.handle(job->request, std::move(notify)));
      asio::post(executor, [job = std::move(job), weak] {
        job->done = true;
        if (const auto self = weak.lock()) self->wake();
      });
    };
    asio::post(workers_, std::move(work));
    while (!job->done && !gone_) {
      auto waiting = wait();
      co_await std::move(waiting);
    }
  }
  if (gone_) {
    // Nobody is left to answer.
  } else if (auto* answer = std::get_if<RunningAnswer>(&*job->outcome)) {
    auto answering = send_answer(*answer, done);
    co_await std::move(answering);
  } else {
    auto sending = send_reply(std::get<HttpReply>(*job->outcome), done);
    co_await std::move(sending);
  }
  auto stopping = stop_watching();
  co_await std::move(stopping);
}

asio::awaitable<void> Connection::send_answer(RunningAnswer& answer, LogEntry& done) {
  done.generated = true;
  done.status = 200;
  if (answer->answer().is_stream()) {
    streaming_ = &*answer;
    auto sending = send_events(*answer);
    const bool complete = co_await std::move(sending);
    streaming_ = nullptr;
    if (!complete) gone_ = true;
  } else {
    while (!answer->answer().finished() && !gone_) {
      if (ending_)
        answer->fail(503, "the server is shutting down");
      else
        answer->take();
      if (answer->answer().finished()) break;
      auto waiting = wait();
      co_await std::move(waiting);
    }
    if (!gone_) {
      const HttpReply reply = answer->answer().whole();
      auto sending = send_reply(reply, done);
      co_await std::move(sending);
    }
  }
  done.usage = answer->answer().usage();
}

// True when the stream is complete.
asio::awaitable<bool> Connection::send_events(Exchange& exchange) {
  const bool chunked = http_version_ >= 11;
  keep_alive_ = keep_alive_ && chunked;
  std::string bytes = head(200, "text/event-stream; charset=utf-8", nullptr);
  for (;;) {
    auto writing = write(std::move(bytes));
    const bool written = co_await std::move(writing);
    if (!written || exchange.answer().finished()) co_return written;
    std::string events;
    while (events.empty()) {
      if (gone_) co_return false;
      events = ending_ ? exchange.fail(503, "the server is shutting down") : exchange.take();
      if (!events.empty()) break;
      auto waiting = wait();
      co_await std::move(waiting);
    }
    bytes = chunked ? chunk(events) : std::move(events);
    if (chunked && exchange.answer().finished()) bytes += "0\r\n\r\n";
  }
}

asio::awaitable<void> Connection::send_reply(const HttpReply& reply, LogEntry& done) {
  done.status = reply.status;
  std::string bytes = head(reply.status, reply.content_type, &reply);
  if (!is_head_) bytes += reply.body;
  auto writing = write(std::move(bytes));
  const bool written = co_await std::move(writing);
  if (!written) gone_ = true;
}

// `reply`: null for a stream.
std::string Connection::head(int status, std::string_view content_type,
                             const HttpReply* reply) const {
  http::response_header<> header;
  header.version(11);
  header.result(static_cast<unsigned>(status));
  header.set(http::field::server, "minisgl");
  if (!content_type.empty()) header.set(http::field::content_type, content_type);
  if (reply == nullptr) {
    header.set(http::field::cache_control, "no-cache");
    if (http_version_ >= 11) header.set(http::field::transfer_encoding, "chunked");
  } else {
    if (status != 204) header.set(http::field::content_length, std::to_string(reply->body.size()));
    for (const auto& [name, value] : reply->headers) header.set(name, value);
  }
  if (!keep_alive_)
    header.set(http::field::connection, "close");
  else if (http_version_ < 11)
    header.set(http::field::connection, "keep-alive");
  std::ostringstream text;
  text << header;
  return text.str();
}

// False when the client took nothing for too long or has gone.
asio::awaitable<bool> Connection::write(std::string bytes) {
  std::size_t sent = 0;
  error_code error;
  while (!error && !gone_ && sent < bytes.size()) {
    arm(options_.write_timeout);
    auto writing = socket_.async_write_some(asio::buffer(bytes) + sent,
                                            asio::redirect_error(asio::use_awaitable, error));
    const std::size_t num_bytes = co_await std::move(writing);
    sent += num_bytes;
  }
  disarm();
  co_return !error && !gone_;
}

// Returns after the next wake(). Nothing is missed as long as the caller looks at what it waits for
// right before: all happens on one thread.
asio::awaitable<void> Connection::wait() {
  error_code cancelled;
  auto waiting = wake_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  co_await std::move(waiting);
}

void Connection::on_update() {
  if (streaming_ != nullptr && streaming_->overflowed()) {
    log::warning("a client does not read its stream: aborted with {} bytes waiting for it",
                 options_.max_backlog_bytes);
    close();  // a write is under way: only this ends it
  }
  wake();
}

void Connection::watch() {
  if (!want_watch_ || watching_ || gone_ || buffer_.size() >= kMaxPipelinedBytes) return;
  watching_ = true;
  auto on_read = [self = shared_from_this()](error_code error, std::size_t num_bytes) {
    self->watching_ = false;
    self->buffer_.commit(num_bytes);
    if (error && error != asio::error::operation_aborted) self->close();
    self->watch();
    self->wake();
  };
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          asio::bind_cancellation_slot(stop_watch_.slot(), std::move(on_read)));
}

asio::awaitable<void> Connection::stop_watching() {
  want_watch_ = false;
  stop_watch_.emit(asio::cancellation_type::total);
  while (watching_) {
    auto waiting = wait();
    co_await std::move(waiting);
  }
}

asio::awaitable<void> Connection::drain() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  arm(kDrainTime);
  buffer_.clear();
  while (!error && !gone_) {
    auto reading = socket_.async_read_some(buffer_.prepare(kReadBytes),
                                           asio::redirect_error(asio::use_awaitable, error));
    co_await std::move(reading);
  }
  disarm();
}

void Connection::arm(std::chrono::milliseconds timeout) {
  deadline_.expires_after(timeout);
  auto on_time = [weak = weak_from_this(), number = ++deadline_number_](error_code error) {
    const auto self = weak.lock();
    // The number: an expiry may be on its way already when disarm() is called.
    if (!error && self && number == self->deadline_number_) self->close();
  };
  deadline_.async_wait(std::move(on_time));
}

void Connection::disarm() {
  ++deadline_number_;
  deadline_.cancel();
}

void Connection::close_when_idle() {
  keep_alive_ = false;
  if (!serving_) close();
}

void Connection::end_answer() {
  ending_ = true;
  wake();
}

void Connection::close() {
  gone_ = true;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  socket_.close(ignored);
  wake();
}

}  // namespace minisgl
