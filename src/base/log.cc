#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

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

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("minisgl");
    made->set_pattern("%H:%M:%S %^%-7l%$ %v");
    made->set_level(to_spdlog(level_from_environment()));
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }
void write(Level level, std::string_view message) {
  logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace minisgl::log
