// Which path does what.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "llm/generator.h"
#include "minisgl/server.h"
#include "server/exchange.h"
#include "server/http_message.h"
#include "server/json.h"
#include "server/server_metrics.h"

namespace minisgl {

/// How an API reads a body.
using OpenJob = Job (*)(std::string_view body, const ApiContext& context);

/// Thread safety: all members may be called by any thread.
class Routes {
 public:
  /// A whole reply, or an answer that has begun.
  using Outcome = std::variant<HttpReply, RunningAnswer>;

  /// `generator` must outlive this.
  Routes(Generator& generator, const ServerOptions& options);

  /// True for requests that may take long to begin (parsing, rendering, tokenizing): to be handled
  /// on a worker thread.
  static bool is_slow(const HttpRequest& request);

  /// Every path, with its methods separated by ", "; one that ends in '/' stands for all below it.
  static std::vector<std::pair<std::string_view, std::string_view>> paths();

  /// 401, in the form of the path's API.
  static HttpReply unauthorized(std::string_view path);
  /// 503, while the server stops; /health says {"status":"draining"}.
  static HttpReply draining(std::string_view path);

  /// Never throws: what goes wrong becomes a reply with OpenAI's error object. `notify`: as for
  /// Exchange. HEAD is answered as GET is: the caller leaves the body out.
  Outcome handle(const HttpRequest& request, std::function<void()> notify);

 private:
  Outcome dispatch(const HttpRequest& request, std::function<void()> notify);
  Outcome generate(OpenJob open, const HttpRequest& request, std::function<void()> notify);
  HttpReply models() const;
  HttpReply model(std::string_view encoded_id) const;
  HttpReply model_info() const;
  HttpReply server_info() const;
  HttpReply health() const;
  HttpReply metrics() const;
  Json model_card(const std::string& id) const;
  ApiContext context();

  Generator& generator_;
  const RequestRules rules_;
  const std::size_t max_requests_;
  const std::int64_t max_queued_;
  const std::size_t max_backlog_bytes_;
  const std::string metrics_prefix_;
  const std::int64_t started_;  // seconds since 1970
  const std::uint64_t id_salt_;
  std::atomic<std::uint64_t> num_ids_{0};
  std::shared_ptr<std::atomic<std::size_t>> num_running_;
  std::shared_ptr<ServerMetrics> metrics_;  // answers share it: see ExchangeOptions
};

}  // namespace minisgl
