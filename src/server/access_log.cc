#include "server/access_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

namespace minisgl {

void write_access_log(const AccessRecord& r) {
  const bool routine = r.status == 200 && (r.path == "/health" || r.path == "/metrics");
  const log::Level level = routine ? log::Level::kDebug : log::Level::kInfo;
  if (!log::enabled(level)) return;
  std::string text = fmt::format("{} {} {} in {:.3f} s", r.method, r.path, r.status, r.seconds);
  std::vector<log::Field> fields{{"request_id", std::string_view(r.request_id)},
                                 {"client", std::string_view(r.client)},
                                 {"method", std::string_view(r.method)},
                                 {"path", std::string_view(r.path)},
                                 {"status", std::int64_t{r.status}},
                                 {"duration_seconds", r.seconds}};
  if (r.generated) {
    if (r.stream) {
      text += fmt::format(", first after {:.3f} s", r.first_byte_seconds);
      fields.push_back({"first_byte_seconds", r.first_byte_seconds});
    }
    text += fmt::format(", {} ({} cached) + {} tokens", r.prompt_tokens, r.cached_tokens,
                        r.completion_tokens);
    fields.push_back({"stream", std::int64_t{r.stream}});
    fields.push_back({"prompt_tokens", r.prompt_tokens});
    fields.push_back({"cached_tokens", r.cached_tokens});
    fields.push_back({"completion_tokens", r.completion_tokens});
  }
  text += fmt::format(", from {}, id {}", r.client, r.request_id);
  log::write(level, text, fields);
}

std::string loggable_path(std::string_view target) {
  constexpr std::size_t kMaxBytes = 200;
  const std::string_view path = target.substr(0, target.find('?'));
  return path.size() <= kMaxBytes ? std::string(path)
                                  : std::string(path.substr(0, kMaxBytes)) + "...";
}

std::string request_id_or_new(std::string_view from_client) {
  constexpr std::size_t kMaxBytes = 128;
  const bool harmless = std::all_of(from_client.begin(), from_client.end(),
                                    [](char c) { return c > ' ' && c < 0x7F && c != '"'; });
  if (!from_client.empty() && from_client.size() <= kMaxBytes && harmless)
    return std::string(from_client);
  static const std::uint64_t salt = std::random_device{}() | std::uint64_t{std::random_device{}()}
                                                                 << 32;
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("{:016x}{:016x}", salt, ++count);
}

}  // namespace minisgl
