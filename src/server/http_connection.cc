#include "server/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "base/log.h"

// g++ 12 destroys temporaries of a full expression with co_await twice: every awaitable and every
// lambda below has a name, and co_await stands alone in its statement.

namespace minisgl {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

// Beyond so much pipelined input a running request's connection is not watched any more.
constexpr std::size_t kMaxPipelinedBytes = std::size_t{1} << 20;
constexpr std::size_t kReadBytes = 16 << 10;
// What a connection holds for what may come while it is idle, or waits for its answer.
constexpr std::size_t kWaitingReadBytes = 1 << 10;
// A close with unread input makes the kernel reset the connection, which may destroy the reply on
// its way; so input is read and dropped for a while.
constexpr std::chrono::milliseconds kDrainTime{2000};

template <class Message>
std::string_view field(const Message& message, std::string_view name) {
  const auto value = message[name];
  return {value.data(), value.size()};
}

double seconds_since(Connection::Clock::time_point begin) {
  return std::chrono::duration<double>(Connection::Clock::now() - begin).count();
}

}  // namespace

struct Connection::Parser : http::request_parser<http::string_body> {};

Connection::Connection(ByteStream::Socket socket, ConnectionContext& context)
    : stream_(std::move(socket), context.tls),
      context_(context),
      options_(context.options),
      client_(stream_.peer_address()),
      wake_(stream_.get_executor(), Clock::time_point::max()) {
  error_code ignored;
  stream_.socket().non_blocking(true, ignored);  // flush() tries to send before it waits
}

asio::awaitable<void> Connection::run() {
  auto shaking = shake_hands();
  bool goes_on = co_await std::move(shaking);
  while (goes_on && !gone_) {
    auto serving = serve_next();
    co_await std::move(serving);
    goes_on = fields_.keep_alive;
  }
  auto leaving = say_goodbye();
  co_await std::move(leaving);
  close();
}

asio::awaitable<void> Connection::refuse() {
  auto shaking = shake_hands();
  const bool secure = co_await std::move(shaking);
  if (secure) {
    HttpReply busy = error_reply(503, "too many connections; try again later", "", "overloaded");
    busy.headers.emplace_back("Retry-After", "1");
    auto refusing = refuse_request(std::move(busy));
    co_await std::move(refusing);
  }
  close();
}

// True for a connection without TLS.
asio::awaitable<bool> Connection::shake_hands() {
  if (!stream_.is_tls()) co_return true;
  error_code error;
  arm(options_.header_timeout);
  auto shaking = stream_.async_handshake(asio::redirect_error(asio::use_awaitable, error));
  co_await std::move(shaking);
  disarm();
  if (error) log::debug("no TLS with {}: {}", client_, error.message());
  co_return !error && !gone_;
}

// Reads a request and answers it; closes the connection when there is none.
asio::awaitable<void> Connection::serve_next() {
  Parser parser;
  auto reading = read(parser);
  const bool complete = co_await std::move(reading);
  disarm();
  if (!complete) {
    fields_.keep_alive = false;
    co_return;
  }
  serving_ = served_ = true;
  const HttpRequest request{.method = std::string(parser.get().method_string()),
                            .target = std::string(parser.get().target()),
                            .body = std::move(parser.get().body()),
                            .arrival = Clock::now()};
  arrival_ = request.arrival;
  is_head_ = request.method == "HEAD";
  fields_.keep_alive = fields_.keep_alive && parser.get().keep_alive();
  const auto preflight =
      context_.cors.preflight(request.method, field(parser.get(), "Origin"),
                              field(parser.get(), "Access-Control-Request-Method"),
                              field(parser.get(), "Access-Control-Request-Headers"));
  if (preflight) {
    fields_.extra_headers = *preflight;
    auto sending = send_reply({.status = 204, .body = {}, .content_type = {}, .headers = {}});
    co_await std::move(sending);
  } else {
    auto serving = serve(request);
    co_await std::move(serving);
  }
  serving_ = false;
  if (gone_) record_.status = kClientGone;
  record_.seconds = seconds_since(arrival_);
  write_access_log(record_);
}

// What the headers say about the reply.
void Connection::begin_request(const Parser& parser) {
  fields_.http_version = parser.get().version();
  arrival_ = Clock::now();
  record_ = {};
  record_.client = client_;
  record_.method = std::string(parser.get().method_string());
  record_.path = loggable_path(std::string(parser.get().target()));
  record_.request_id = request_id_or_new(field(parser.get(), "X-Request-Id"));
  fields_.request_id = record_.request_id;
  fields_.extra_headers = context_.cors.headers(field(parser.get(), "Origin"));
}

// False when the connection is to be closed.
asio::awaitable<bool> Connection::read(Parser& parser) {
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(options_.max_body_bytes);
  error_code error;
  if (buffer_.size() == 0) {
    arm(options_.idle_timeout);
    between_requests_ = served_;
    auto waiting = stream_.async_read_some(buffer_.prepare(kWaitingReadBytes),
                                           asio::redirect_error(asio::use_awaitable, error));
    const std::size_t num_bytes = co_await std::move(waiting);
    between_requests_ = false;
    buffer_.commit(num_bytes);
    if (error || gone_) co_return false;
  }
  arm(options_.header_timeout);
  auto reading_header = http::async_read_header(stream_, buffer_, parser,
                                                asio::redirect_error(asio::use_awaitable, error));
  co_await std::move(reading_header);
  if (error) {
    auto answering = answer_broken_request(error);
    co_await std::move(answering);
    co_return false;
  }
  begin_request(parser);
  const bool is_preflight = parser.get().method() == http::verb::options;  // has no key
  if (!is_preflight && context_.keys.guards(record_.path) &&
      !context_.keys.accepts(field(parser.get(), "Authorization"),
                             field(parser.get(), "x-api-key"))) {
    auto refusing = refuse_request(Routes::unauthorized(record_.path));
    co_await std::move(refusing);
    co_return false;
  }
  auto reading_body = read_body(parser);
  const bool complete = co_await std::move(reading_body);
  co_return complete;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  if (!parser.is_done() &&
      boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    auto writing = write("HTTP/1.1 100 Continue\r\n\r\n");
    co_await std::move(writing);
  }
  const Clock::time_point end = Clock::now() + options_.request_timeout;
  error_code error;
  while (!error && !gone_ && !parser.is_done()) {
    deadline_ = std::min(Clock::now() + options_.idle_timeout, end);
    auto reading = http::async_read_some(stream_, buffer_, parser,
                                         asio::redirect_error(asio::use_awaitable, error));
    co_await std::move(reading);
  }
  if (error) {
    auto answering = answer_broken_request(error);
    co_await std::move(answering);
  }
  co_return !error && !gone_;
}

asio::awaitable<void> Connection::answer_broken_request(error_code error) {
  const error_code end = http::error::end_of_stream;
  if (gone_ || error == end || error.category() != end.category()) co_return;
  if (record_.request_id.empty()) {  // the headers were not read
    arrival_ = Clock::now();
    record_.client = client_;
    record_.method = "?";
    record_.path = "?";
    record_.request_id = request_id_or_new("");
    fields_.request_id = record_.request_id;
  }
  auto refusing = refuse_request(broken_request_reply(error, options_.max_body_bytes));
  co_await std::move(refusing);
}

// Answers a request that was not read to its end, and drops the rest.
asio::awaitable<void> Connection::refuse_request(HttpReply reply) {
  fields_.keep_alive = false;
  is_head_ = false;
  auto sending = send_reply(std::move(reply));
  co_await std::move(sending);
  if (!record_.method.empty()) {
    record_.seconds = seconds_since(arrival_);
    write_access_log(record_);
  }
  auto draining = drain();
  co_await std::move(draining);
}

asio::awaitable<void> Connection::serve(const HttpRequest& request) {
  // The client may go, and this coroutine with it, while a worker is busy: what they share is not
  // theirs. An answer that nobody collects is aborted by its destructor.
  struct Job {
    HttpRequest request;
    std::optional<Routes::Outcome> outcome;
    bool done = false;  // seen by this thread only
  };
  const auto job = std::make_shared<Job>();
  std::function<void()> notify = [weak = weak_from_this(), &mailbox = context_.mailbox] {
    mailbox.push(weak);
  };
  if (context_.draining && request.target != "/metrics") {
    fields_.keep_alive = false;
    job->outcome.emplace(Routes::draining(record_.path));
  } else if (!Routes::is_slow(request)) {
    job->outcome.emplace(context_.routes.handle(request, std::move(notify)));
  } else {
    want_watch_ = true;
    watch();
    job->request = request;
    auto work = [job, weak = weak_from_this(), executor = stream_.get_executor(),
                 &routes = context_.routes, notify = std::move(notify)]() mutable {
      job->outcome.emplace(routes.handle(job->request, std::move(notify)));
      asio::post(executor, [job, weak] {
        job->done = true;
        if (const auto self = weak.lock()) self->wake();
      });
    };
    asio::post(context_.workers, std::move(work));
    while (!job->done && !gone_) {
      auto waiting = wait();
      co_await std::move(waiting);
    }
  }
  if (!gone_) {
    auto sending = send_outcome(std::move(*job->outcome));
    co_await std::move(sending);
  }
  auto stopping = stop_watching();
  co_await std::move(stopping);
}

asio::awaitable<void> Connection::send_outcome(Routes::Outcome outcome) {
  if (auto* answer = std::get_if<RunningAnswer>(&outcome)) {
    auto answering = send_answer(*answer);
    co_await std::move(answering);
  } else {
    auto sending = send_reply(std::move(std::get<HttpReply>(outcome)));
    co_await std::move(sending);
  }
}

asio::awaitable<void> Connection::send_answer(RunningAnswer& answer) {
  record_.generated = true;
  record_.stream = answer->answer().is_stream();
  if (record_.stream) {
    auto sending = send_events(*answer);
    co_await std::move(sending);
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
      auto sending = send_reply(answer->answer().whole());
      co_await std::move(sending);
    }
  }
  const Usage usage = answer->answer().usage();
  record_.prompt_tokens = usage.prompt_tokens;
  record_.cached_tokens = usage.cached_tokens;
  record_.completion_tokens = usage.completion_tokens;
}

// pump() does the work, called for every update; this waits for the end.
asio::awaitable<void> Connection::send_events(Exchange& exchange) {
  record_.status = 200;
  fields_.keep_alive = fields_.keep_alive && fields_.http_version >= 11;
  out_ = stream_head(fields_);
  out_sent_ = 0;
  all_taken_ = false;
  streaming_ = &exchange;
  pump();
  while (!gone_ && !(all_taken_ && out_.empty())) {
    auto waiting = wait();
    co_await std::move(waiting);
  }
  streaming_ = nullptr;
}

// Moves events from the answer to the socket, as long as that takes them.
void Connection::pump() {
  for (;;) {
    flush();
    if (gone_ || !out_.empty() || all_taken_ || streaming_ == nullptr) break;
    const std::string events =
        ending_ ? streaming_->fail(503, "the server is shutting down") : streaming_->take();
    if (events.empty()) return;
    if (record_.first_byte_seconds == 0) record_.first_byte_seconds = seconds_since(arrival_);
    all_taken_ = streaming_->answer().finished();
    if (fields_.http_version >= 11) {
      fmt::format_to(std::back_inserter(out_), "{:x}\r\n", events.size());
      out_.append(events).append(all_taken_ ? "\r\n0\r\n\r\n" : "\r\n");
    } else {
      out_ += events;
    }
  }
  if (gone_ || (all_taken_ && out_.empty())) wake();
}

asio::awaitable<void> Connection::send_reply(HttpReply reply) {
  record_.status = reply.status;
  std::string bytes = reply_head(reply, fields_);
  if (!is_head_) bytes += reply.body;
  record_.first_byte_seconds = seconds_since(arrival_);
  auto writing = write(std::move(bytes));
  co_await std::move(writing);
}

// Sets gone_ when the client took nothing for too long or has gone.
asio::awaitable<void> Connection::write(std::string bytes) {
  out_ = std::move(bytes);
  out_sent_ = 0;
  flush();
  while (!gone_ && !out_.empty()) {
    auto waiting = wait();
    co_await std::move(waiting);
  }
}

// Sends what the socket takes now; the rest goes on by itself.
void Connection::flush() {
  while (!out_.empty() && !writing_ && !gone_) {
    if (stream_.is_tls()) {  // has buffers of its own, which a send that would block gets lost in
      start_write();
      return;
    }
    error_code error;
    out_sent_ += stream_.socket().send(asio::buffer(out_) + out_sent_, 0, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      start_write();
    } else if (error) {
      close();
    } else if (out_sent_ == out_.size()) {
      out_.clear();
      out_sent_ = 0;
    }
  }
}

void Connection::start_write() {
  writing_ = true;
  arm(options_.write_timeout);
  auto on_written = [self = shared_from_this()](error_code error, std::size_t num_bytes) {
    self->finish_write(error, num_bytes);
  };
  stream_.async_write_some(asio::buffer(out_) + out_sent_, std::move(on_written));
}

void Connection::finish_write(error_code error, std::size_t num_bytes) {
  writing_ = false;
  disarm();
  out_sent_ += num_bytes;
  if (out_sent_ == out_.size()) {
    out_.clear();
    out_sent_ = 0;
  }
  if (error) close();
  if (streaming_ != nullptr)
    pump();
  else
    flush();
  if (out_.empty()) wake();
}

// Returns after the next wake(). Nothing is missed as long as the caller looks at what it waits for
// right before: all happens on one thread.
asio::awaitable<void> Connection::wait() {
  error_code cancelled;
  auto waiting = wake_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  co_await std::move(waiting);
}

void Connection::on_update() {
  if (streaming_ == nullptr) {
    wake();
    return;
  }
  if (streaming_->overflowed()) {
    log::warning("a client does not read its stream: aborted with {} bytes waiting for it",
                 options_.max_backlog_bytes);
    close();  // a write is under way: only this ends it
  }
  pump();
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
  stream_.async_read_some(buffer_.prepare(kWaitingReadBytes),
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

// A TLS client must not take the end of the connection for an attack.
asio::awaitable<void> Connection::say_goodbye() {
  if (!stream_.is_tls() || gone_) co_return;
  arm(kDrainTime);
  error_code ignored;
  auto leaving = stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  co_await std::move(leaving);
  disarm();
}

asio::awaitable<void> Connection::drain() {
  auto leaving = say_goodbye();
  co_await std::move(leaving);
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  arm(kDrainTime);
  buffer_.clear();
  while (!error && !gone_) {
    auto reading = stream_.socket().async_read_some(
        buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    co_await std::move(reading);
  }
  close();
}

void Connection::end_answer() {
  ending_ = true;
  if (streaming_ != nullptr) pump();
  wake();
}

void Connection::close() {
  gone_ = true;
  disarm();
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  stream_.socket().close(ignored);
  wake();
}

}  // namespace minisgl
