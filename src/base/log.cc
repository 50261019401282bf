#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <fmt/chrono.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <memory>

#include "base/utf8.h"

namespace minisgl::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
    case Level::kOff: return spdlog::level::off;
  }
  return spdlog::level::info;
}

Level level_from_environment() {
  const char* text = std::getenv("LOG_LEVEL");
  const std::string name = text == nullptr ? "" : text;
  if (name == "DEBUG") return Level::kDebug;
  if (name == "WARNING") return Level::kWarning;
  if (name == "ERROR" || name == "CRITICAL") return Level::kError;
  return Level::kInfo;
}

constexpr const char* kTextPattern = "%H:%M:%S %^%-7l%$ %v";

std::atomic<Format> line_format{Format::kText};

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarning: return "warning";
    case Level::kError: return "error";
    case Level::kOff: break;
  }
  return "off";
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : is_valid_utf8(text) ? std::string(text) : replace_ill_formed(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json(std::string& out, const Field& field) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":", field.name);
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    append_json_string(out, *text);
  } else if (const auto* number = std::get_if<double>(&field.value)) {
    out += std::isfinite(*number) ? fmt::format("{}", *number) : "null";
  } else {
    out += fmt::format("{}", std::get<std::int64_t>(field.value));
  }
}

/// What would end the line or talk to the terminal is replaced.
std::string printable(std::string_view text) {
  std::string result = is_valid_utf8(text) ? std::string(text) : replace_ill_formed(text);
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto c = static_cast<unsigned char>(result[i]);
    if ((c >= 0x20 && c != 0x7F) || c == '\t') continue;
    result.replace(i, 1, kReplacement);
    i += kReplacement.size() - 1;
  }
  return result;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("minisgl");
    made->set_pattern(kTextPattern);
    made->set_level(to_spdlog(level_from_environment()));
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }
void set_format(Format format) {
  line_format = format;
  logger().set_pattern(format == Format::kJson ? "%v" : kTextPattern);
}

std::string to_json(Level level, std::string_view message, std::span<const Field> fields,
                    std::int64_t time_ms) {
  const std::time_t seconds = time_ms / 1000;
  std::string line =
      fmt::format("{{\"time\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"level\":\"{}\",\"message\":",
                  fmt::gmtime(seconds), time_ms % 1000, name_of(level));
  append_json_string(line, message);
  for (const Field& field : fields) append_json(line, field);
  return line += '}';
}

void write(Level level, std::string_view message, std::span<const Field> fields) {
  if (!enabled(level)) return;
  std::string line;
  if (line_format == Format::kJson) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    line = to_json(level, message, fields,
                   std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  } else {
    line = printable(message);
  }
  logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace minisgl::log
