// serve: the HTTP server, until a signal.

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "llm/local_generator.h"
#include "minisgl/error.h"
#include "minisgl/server.h"
#include "ranks.h"
#include "serve_loop.h"
#include "server_options.h"

namespace minisgl::app {
namespace {

struct Options {
  LlmOptions llm;
  RankFlags ranks;
  ServerFlags flags;
  std::vector<std::string> served_names;
};

/// Many systems allow 1024 open files unless asked for more.
void allow_open_files(std::size_t max_connections) {
  constexpr rlim_t kOthers = 256;  // the model's files, logs, ...
  const rlim_t wanted = max_connections + kOthers;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
    log::warning(
        "Only {} files may be open, but --max-connections {} needs {}: raise the limit (ulimit -n) "
        "or lower the number",
        limit.rlim_cur, max_connections, wanted);
}

/// Where clients on this machine find the server.
std::string url_of(const ServerOptions& options, std::uint16_t port) {
  std::string host = options.host;
  if (host == "0.0.0.0" || host == "::" || host == "[::]") host = "127.0.0.1";
  if (host.find(':') != std::string::npos && !host.starts_with('[')) host = "[" + host + "]";
  return fmt::format("{}://{}:{}", options.tls_certificate.empty() ? "http" : "https", host, port);
}

/// Ends the process without giving anything back: work of a GPU may wait for a rank that is gone,
/// and so would whoever frees its memory. The other ranks end with this one.
[[noreturn]] void leave(const std::string& fault) {
  std::fprintf(stderr, "minisgl: %s\n", fault.c_str());
  std::_Exit(1);
}

int serve(const Options& options, const RankSetup& ranks) {
  ServerOptions server_settings = server_options(options.flags);
  LlmOptions llm_settings = options.llm;
  if (!options.served_names.empty()) {
    llm_settings.served_model_name = options.served_names.front();
    server_settings.aliases.assign(options.served_names.begin() + 1, options.served_names.end());
  }
  check_can_listen(server_settings);  // loading a model may take long
  allow_open_files(server_settings.max_connections);
  // What belongs to a token is allocated by the scheduler's thread and freed by the server's. With
  // a heap for each thread they fray: 10 % in ten minutes of a thousand streams. One is no slower.
  mallopt(M_ARENA_MAX, 1);
  const sigset_t signals = block_signals();
  std::optional<ExitOnSignal> while_loading(std::in_place, signals);
  LocalGenerator generator(llm_settings, ranks);
  while_loading.reset();
  Server server(generator, server_settings);
  server.start();
  log::info("Ready: {} is served at {}/v1", generator.model_name(),
            url_of(server_settings, server.port()));
  try {
    serve_until_stopped(server, generator, signals, server_settings.stop_deadline);
  } catch (const Error& e) {
    if (ranks.group != nullptr) leave(e.what());
    throw;
  }
  log::info("Stopped");
  return 0;
}

}  // namespace

Command add_serve(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_server_flags(app, options->flags);
  add_engine_flags(app, options->llm);
  app.add_option("--served-model-name", options->served_names,
                 "The model's id in the API; default: its file's name. Requests may ask for it by "
                 "any of several; replies name the first")
      ->delimiter(',')
      ->type_name("NAME");
  app.add_flag("--accept-any-model", options->flags.server.accept_any_model,
               "Answer requests for models of other names too; replies name the served one");
  add_chat_flags(app, options->llm);
  add_rank_flags(app, options->ranks);
  add_upstream_flags(app);
  return [options] {
    if (options->flags.log_format == "json") log::set_format(log::Format::kJson);
    block_signals();  // before there are threads that watch ranks
    return with_ranks(options->ranks, options->llm,
                      [&](const RankSetup& ranks) { return serve(*options, ranks); });
  };
}

}  // namespace minisgl::app
