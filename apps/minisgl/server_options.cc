// The flags of serve that are about HTTP.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "commands.h"
#include "formats/file_kind.h"
#include "minisgl/error.h"
#include "server_options.h"

namespace minisgl::app {
namespace {

using std::chrono::milliseconds;

CLI::Option* add_seconds(CLI::App& app, const std::string& name, milliseconds& target,
                         const std::string& help) {
  std::string text = std::to_string(static_cast<double>(target.count()) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return app
      .add_option_function<double>(
          name, [&target](double seconds) { target = milliseconds(std::llround(seconds * 1000)); },
          help)
      ->check(number_from(0.001))
      ->type_name("SECONDS")
      ->default_str(text);
}

template <class T>
CLI::Option* add_count(CLI::App& app, const std::string& name, T& target, const std::string& help) {
  return app.add_option(name, target, help)
      ->check(whole_number_from(1))
      ->type_name("N")
      ->capture_default_str();
}

void put_into(const std::string& group, const std::vector<CLI::Option*>& options) {
  for (CLI::Option* option : options) option->group(group);
}

void add_access_flags(CLI::App& app, ServerFlags& flags) {
  ServerOptions& s = flags.server;
  put_into("Access",
           {app.add_option("--api-key", s.api_keys,
                           "A key of which clients must send one; may be given several times. "
                           "Others see it in the list of processes: rather use --api-key-file or "
                           "MINISGL_API_KEY (keys separated by commas)")
                ->delimiter(',')
                ->type_name("KEY"),
            app.add_option("--api-key-file", flags.api_key_file, "The same, a key on each line")
                ->type_name("FILE"),
            app.add_option("--cors-origin", s.cors_origins,
                           "Web pages of this origin may use the server, such as "
                           "https://chat.example.org; * for all; may be given several times")
                ->delimiter(',')
                ->type_name("ORIGIN"),
            app.add_option("--tls-cert,--ssl-certfile", s.tls_certificate,
                           "Certificate with its chain (PEM); with --tls-key: HTTPS only")
                ->type_name("FILE"),
            app.add_option("--tls-key,--ssl-keyfile", s.tls_key, "The certificate's key (PEM)")
                ->type_name("FILE")});
}

void add_limit_flags(CLI::App& app, ServerOptions& s) {
  put_into(
      "Limits",
      {app.add_option("--max-body-size", s.max_body_bytes,
                      "Longer bodies get status 413; a number of bytes, or as 32MB")
           ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false).description(""))
           ->type_name("SIZE")
           ->default_str("32MB"),
       add_count(app, "--max-connections", s.max_connections, "Further ones get status 503"),
       add_count(app, "--max-requests", s.max_requests,
                 "Requests that are answered at once, queued ones included; further ones get 429"),
       add_count(app, "--max-queued-requests", s.max_queued,
                 "Answers that wait for the engine; while there are so many, requests get 429"),
       add_seconds(
           app, "--idle-timeout", s.idle_timeout,
           "Connections without a request, or without the next bytes of a body, are closed"),
       add_seconds(app, "--header-timeout", s.header_timeout, "For all headers of a request"),
       add_seconds(app, "--request-timeout", s.request_timeout, "For the whole body of a request"),
       add_seconds(app, "--write-timeout", s.write_timeout,
                   "Clients that take nothing for so long are closed"),
       add_seconds(app, "--drain-timeout", s.stop_deadline,
                   "What running answers have to end after SIGTERM")});
}

}  // namespace

void add_server_flags(CLI::App& app, ServerFlags& flags) {
  const auto text_or_json = [](const std::string& name) {
    return name == "text" || name == "json"
               ? std::string()
               : in_quotes(name) + " is not known; known are text, json";
  };
  ServerOptions& s = flags.server;
  put_into(
      "Server",
      {app.add_option("--host", s.host,
                      "Address to listen on; 0.0.0.0: every interface; "
                      "::: those of IPv6 as well")
           ->type_name("HOST")
           ->capture_default_str(),
       app.add_option("--port", s.port, "Port to listen on; 0: any free one")
           ->check(whole_number_from(0, 65535))
           ->type_name("N")
           ->capture_default_str(),
       app.add_option("--metrics-prefix", s.metrics_prefix,
                      "Begins the names of /metrics; vllm: suits dashboards made for vLLM")
           ->type_name("TEXT")
           ->capture_default_str(),
       app.add_option("--log-format", flags.log_format, "text, or json: an object on each line")
           ->check(text_or_json)
           ->type_name("NAME")
           ->capture_default_str(),
       app.add_option("--num-tokenizer,--tokenizer-count", flags.num_workers,
                      "Threads that read requests and tokenize; 0: two")
           ->check(whole_number_from(0, 256))
           ->type_name("N")
           ->capture_default_str()});
  add_access_flags(app, flags);
  add_limit_flags(app, s);
}

ServerOptions server_options(const ServerFlags& flags) {
  ServerOptions options = flags.server;
  if (flags.num_workers > 0) options.num_workers = flags.num_workers;
  if (flags.api_key_file.empty()) return options;
  std::ifstream file(flags.api_key_file);
  if (!file)
    throw Error("cannot read --api-key-file " + flags.api_key_file + ": " + std::strerror(errno));
  for (std::string line; std::getline(file, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (!line.empty()) options.api_keys.push_back(line);
  }
  if (options.api_keys.empty())
    throw Error("--api-key-file " + flags.api_key_file + " holds no key: write one on each line");
  return options;
}

}  // namespace minisgl::app
