// Log lines on standard error: "14:03:21 INFO  message". Standard output belongs to results.

#pragma once

#include <fmt/format.h>

#include <string_view>

namespace minisgl::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// Lines below this level are dropped. Starts as LOG_LEVEL says (DEBUG, INFO, WARNING, ERROR; INFO
/// when unset). Thread-safe.
void set_level(Level level);
bool enabled(Level level);

/// Writes one line. Thread-safe.
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug))
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarning))
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError))
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace minisgl::log
