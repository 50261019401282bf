#include "server/routes.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "metrics/exposition.h"
#include "minisgl/version.h"
#include "server/anthropic/messages.h"
#include "server/generate/generate.h"
#include "server/json.h"
#include "server/openai/chat.h"
#include "server/openai/completion.h"
#include "server/openapi.h"
#include "server/responses/responses.h"
#include "server/tokenize.h"

namespace minisgl {
namespace {

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What answers at a path. A path that ends in '/' stands for all below it.
enum class Action {
  kGenerate,
  kCountTokens,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,
  kModelInfo,
  kServerInfo,
  kFlushCache,
  kHealth,
  kMetrics,
  kVersion,
  kOpenApi,
  kAlive
};

struct Route {
  std::string_view path;
  std::string_view methods;  // separated by ", "; HEAD comes with GET, OPTIONS with all
  Action action;
  OpenJob open = nullptr;  // kGenerate: who reads the body
};

constexpr Route kRoutes[] = {
    {"/v1/chat/completions", "POST", Action::kGenerate, openai::open_chat},
    {"/v1/completions", "POST", Action::kGenerate, openai::open_completion},
    {"/v1/responses", "POST", Action::kGenerate, responses::open_response},
    {"/v1/messages", "POST", Action::kGenerate, anthropic::open_messages},
    {"/v1/messages/count_tokens", "POST", Action::kCountTokens},
    {"/generate", "POST", Action::kGenerate, open_generate},
    {"/tokenize", "POST", Action::kTokenize},
    {"/detokenize", "POST", Action::kDetokenize},
    {"/v1/models", "GET", Action::kModels},
    {"/v1/models/", "GET", Action::kModel},
    {"/health", "GET", Action::kHealth},
    // What sglang-router asks of a worker; the paths with get_ are older.
    {"/health_generate", "GET", Action::kGenerate, open_health_generate},
    {"/model_info", "GET", Action::kModelInfo},
    {"/get_model_info", "GET", Action::kModelInfo},
    {"/server_info", "GET", Action::kServerInfo},
    {"/get_server_info", "GET", Action::kServerInfo},
    {"/flush_cache", "GET, POST", Action::kFlushCache},
    {"/metrics", "GET", Action::kMetrics},
    {"/version", "GET", Action::kVersion},
    {"/openapi.json", "GET", Action::kOpenApi},
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

// In the form of the API that the path belongs to.
HttpReply failure(std::string_view path, int status, const RequestError& error) {
  if (path.starts_with("/v1/messages")) return anthropic::error_reply(status, error.what());
  return error_reply(status, error.what(), error.param(), error.code());
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
          .aliases = options.aliases,
          .accept_any_model = options.accept_any_model},
      max_requests_(options.max_requests),
      max_queued_(static_cast<std::int64_t>(options.max_queued)),
      max_backlog_bytes_(options.max_backlog_bytes),
      metrics_prefix_(options.metrics_prefix),
      started_(seconds_since_1970()),
      id_salt_(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32),
      num_running_(std::make_shared<std::atomic<std::size_t>>(0)),
      metrics_(std::make_shared<ServerMetrics>(generator.max_seq_len())) {}

std::vector<std::pair<std::string_view, std::string_view>> Routes::paths() {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  for (const Route& route : kRoutes) all.emplace_back(route.path, route.methods);
  return all;
}

HttpReply Routes::unauthorized(std::string_view path) {
  HttpReply reply = failure(path, 401,
                            RequestError("a key is needed: send one of this server's API keys as "
                                         "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
                                         "", "invalid_api_key"));
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply Routes::draining(std::string_view path) {
  HttpReply reply = failure(path, 503, RequestError("the server is shutting down", "", "draining"));
  if (path == "/health") reply.body = R"({"status":"draining"})";
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

bool Routes::is_slow(const HttpRequest& request) {
  return request.method == "POST" && path_of(request) != "/v1";
}

Routes::Outcome Routes::handle(const HttpRequest& request, std::function<void()> notify) {
  try {
    return dispatch(request, std::move(notify));
  } catch (const StatusError& e) {
    HttpReply reply = failure(path_of(request), e.status(), e);
    if (e.status() == 429) reply.headers.emplace_back("Retry-After", "1");
    return reply;
  } catch (const RequestError& e) {
    return failure(path_of(request), 400, e);
  } catch (const std::exception& e) {
    log::error("{} {} failed: {}", request.method, request.target, e.what());
    return failure(path_of(request), 500, RequestError(e.what()));
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
    case Action::kCountTokens: return anthropic::count_tokens(request.body, context());
    case Action::kTokenize: return tokenize(request.body, context());
    case Action::kDetokenize: return detokenize(request.body, context());
    case Action::kModels: return models();
    case Action::kModel: return model(path.substr(route->path.size()));
    case Action::kModelInfo: return model_info();
    case Action::kServerInfo: return server_info();
    case Action::kFlushCache: generator_.flush_cache(); return json_reply({{"success", true}});
    case Action::kHealth: return health();
    case Action::kMetrics: return metrics();
    case Action::kVersion: return json_reply({{"version", kVersion}});
    case Action::kOpenApi:
      return HttpReply{
          .status = 200, .body = openapi_json(), .content_type = "application/json", .headers = {}};
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
  auto exchange = std::make_shared<Exchange>(
      generator_, open(request.body, context()),
      ExchangeOptions{
          .max_backlog_bytes = max_backlog_bytes_, .arrival = request.arrival, .metrics = metrics_},
      std::move(notify));
  exchange->start();
  return RunningAnswer(std::move(exchange), slot);
}

ApiContext Routes::context() {
  return {.generator = generator_,
          .rules = rules_,
          .unique_id = fmt::format("{:016x}{:08x}", id_salt_, ++num_ids_),
          .created = seconds_since_1970()};
}

Json Routes::model_card(const std::string& id) const {
  return {{"id", id},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "minisgl"},
          {"root", generator_.model_path()},
          {"max_model_len", generator_.max_seq_len()}};
}

HttpReply Routes::models() const {
  Json cards = Json::array({model_card(rules_.served_name)});
  for (const std::string& alias : rules_.aliases) cards.push_back(model_card(alias));
  return json_reply({{"object", "list"}, {"data", std::move(cards)}});
}

HttpReply Routes::model(std::string_view encoded_id) const {
  const std::string id = percent_decoded(encoded_id);
  if (!rules_.serves(id)) rules_.refuse(id);
  return json_reply(model_card(id));
}

HttpReply Routes::model_info() const {
  return json_reply({{"model_path", generator_.model_path()},
                     {"tokenizer_path", generator_.model_path()},
                     {"served_model_name", rules_.served_name},
                     {"is_generation", true},
                     {"max_context_length", generator_.max_seq_len()},
                     {"vocab_size", generator_.vocab_size()}});
}

HttpReply Routes::server_info() const {
  return json_reply({{"model_path", generator_.model_path()},
                     {"served_model_name", rules_.served_name},
                     {"tp_size", 1},
                     {"dp_size", 1},
                     {"version", kVersion},
                     {"context_length", generator_.max_seq_len()},
                     {"max_req_input_len", generator_.max_seq_len() - 1},
                     {"status", "ready"}});
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
