#include "server/routes.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "metrics/exposition.h"
#include "minisgl/version.h"
#include "server/generate/mini_sglang.h"
#include "server/json.h"
#include "server/openai/chat.h"
#include "server/openai/completion.h"

namespace minisgl {
namespace {

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What answers at a path. A path that ends in '/' stands for all below it.
enum class Action { kGenerate, kModels, kModel, kHealth, kMetrics, kVersion, kAlive };

struct Route {
  std::string_view path;
  std::string_view methods;  // separated by ", "; HEAD comes with GET, OPTIONS with all
  Action action;
  OpenJob open = nullptr;  // kGenerate: who reads the body
};

constexpr Route kRoutes[] = {
    {"/v1/chat/completions", "POST", Action::kGenerate, openai::open_chat},
    {"/v1/completions", "POST", Action::kGenerate, openai::open_completion},
    {"/generate", "POST", Action::kGenerate, open_mini_sglang_generate},
    {"/v1/models", "GET", Action::kModels},
    {"/v1/models/", "GET", Action::kModel},
    {"/health", "GET", Action::kHealth},
    {"/metrics", "GET", Action::kMetrics},
    {"/version", "GET", Action::kVersion},
    {"/v1", "GET, POST", Action::kAlive},  // upstream answers both: load balancers ask here
};

std::string_view path_of(const HttpRequest& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool is_folder = route.path.ends_with('/');
    if (is_folder ? path.size() > route.path.size() && path.starts_with(route.path)
                  : path == route.path)
      return &route;
  }
  return nullptr;
}

bool allows(const Route& route, std::string_view method) {
  if (method == "HEAD") method = "GET";
  return route.methods.find(method) != std::string_view::npos && !method.empty();
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      result += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

HttpReply unknown_path(std::string_view path) {
  std::string known;
  for (const Route& route : kRoutes)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", route.path);
  return error_reply(404, fmt::format("there is nothing at {}; paths are {}", path, known));
}

std::string options_of(const Route& route) {
  return std::string(route.methods) +
         (route.methods.starts_with("GET") ? ", HEAD, OPTIONS" : ", OPTIONS");
}

}  // namespace

Routes::Routes(Generator& generator, const ServerOptions& options)
    : generator_(generator),
      rules_{
          .served_name = options.served_name.empty() ? generator.model_name() : options.served_name,
          .accept_any_model = options.accept_any_model},
      max_requests_(options.max_requests),
      max_queued_(static_cast<std::int64_t>(options.max_queued)),
      max_backlog_bytes_(options.max_backlog_bytes),
      metrics_prefix_(options.metrics_prefix),
      started_(seconds_since_1970()),
      id_salt_(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32),
      num_running_(std::make_shared<std::atomic<std::size_t>>(0)),
      metrics_(std::make_shared<ServerMetrics>(generator.max_seq_len())) {}

bool Routes::is_slow(const HttpRequest& request) {
  return request.method == "POST" && path_of(request) != "/v1";
}

Routes::Outcome Routes::handle(const HttpRequest& request, std::function<void()> notify) {
  try {
    return dispatch(request, std::move(notify));
  } catch (const StatusError& e) {
    HttpReply reply = error_reply(e.status(), e.what(), e.param(), e.code());
    if (e.status() == 429) reply.headers.emplace_back("Retry-After", "1");
    return reply;
  } catch (const RequestError& e) {
    return error_reply(400, e.what(), e.param(), e.code());
  } catch (const std::exception& e) {
    log::error("{} {} failed: {}", request.method, request.target, e.what());
    return error_reply(500, e.what());
  }
}

Routes::Outcome Routes::dispatch(const HttpRequest& request, std::function<void()> notify) {
  const std::string_view path = path_of(request);
  const Route* route = find_route(path);
  if (route == nullptr) return unknown_path(path);
  if (request.method == "OPTIONS" && route->action != Action::kAlive)
    return HttpReply{
        .status = 204, .body = {}, .content_type = {}, .headers = {{"Allow", options_of(*route)}}};
  if (request.method != "OPTIONS" && !allows(*route, request.method)) {
    HttpReply reply = error_reply(
        405, fmt::format("{} does not take {}, but {}", path, request.method, route->methods));
    reply.headers.emplace_back("Allow", options_of(*route));
    return reply;
  }
  switch (route->action) {
    case Action::kGenerate: return generate(route->open, request, std::move(notify));
    case Action::kModels: return models();
    case Action::kModel: return model(path.substr(route->path.size()));
    case Action::kHealth: return health();
    case Action::kMetrics: return metrics();
    case Action::kVersion: return json_reply({{"version", kVersion}});
    case Action::kAlive: return json_reply({{"status", "ok"}});
  }
  return unknown_path(path);
}

Routes::Outcome Routes::generate(OpenJob open, const HttpRequest& request,
                                 std::function<void()> notify) {
  // The slot is taken before the costly part: the limit also bounds what waits for a worker.
  const std::shared_ptr<void> slot(nullptr, [count = num_running_](void*) { --*count; });
  if (++*num_running_ > max_requests_)
    throw StatusError(429,
                      fmt::format("{} requests are being served; try again later", max_requests_),
                      "", "overloaded");
  if (const std::int64_t waiting = generator_.stats().waiting; waiting >= max_queued_)
    throw StatusError(429, fmt::format("{} answers wait for their turn; try again later", waiting),
                      "", "overloaded");
  const ApiContext context{.generator = generator_,
                           .rules = rules_,
                           .unique_id = unique_id(),
                           .created = seconds_since_1970()};
  auto exchange = std::make_shared<Exchange>(
      generator_, open(request.body, context),
      ExchangeOptions{
          .max_backlog_bytes = max_backlog_bytes_, .arrival = request.arrival, .metrics = metrics_},
      std::move(notify));
  exchange->start();
  return RunningAnswer(std::move(exchange), slot);
}

std::string Routes::unique_id() { return fmt::format("{:016x}{:08x}", id_salt_, ++num_ids_); }

std::string Routes::model_card() const {
  return dump({{"id", rules_.served_name},
               {"object", "model"},
               {"created", started_},
               {"owned_by", "minisgl"},
               {"root", rules_.served_name},
               {"max_model_len", generator_.max_seq_len()}});
}

HttpReply Routes::models() const {
  return {.status = 200,
          .body = fmt::format(R"({{"object":"list","data":[{}]}})", model_card()),
          .content_type = "application/json",
          .headers = {}};
}

HttpReply Routes::model(std::string_view encoded_id) const {
  const std::string id = percent_decoded(encoded_id);
  if (id != rules_.served_name)
    return error_reply(404,
                       fmt::format("the model \"{}\" is not served here; this server has \"{}\"",
                                   id, rules_.served_name),
                       "model", "model_not_found");
  return {.status = 200, .body = model_card(), .content_type = "application/json", .headers = {}};
}

HttpReply Routes::metrics() const {
  return {.status = 200,
          .body = metrics_->text(metrics_prefix_, rules_.served_name, generator_),
          .content_type = std::string(metrics::kContentType),
          .headers = {}};
}

HttpReply Routes::health() const {
  const SchedulerStats s = generator_.stats();
  return json_reply({{"status", "ok"},
                     {"requests", num_running_->load()},
                     {"running", s.running},
                     {"waiting", s.waiting},
                     {"free_pages", s.free_pages},
                     {"cached_pages", s.cached_pages},
                     {"total_pages", s.total_pages},
                     {"prompt_tokens", s.prompt_tokens},
                     {"cached_prompt_tokens", s.cached_prompt_tokens},
                     {"generated_tokens", s.generated_tokens}});
}

}  // namespace minisgl
