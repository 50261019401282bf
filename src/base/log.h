// Log lines on standard error: "14:03:21 INFO  message", or one JSON object each. Standard output
// belongs to results.

#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace minisgl::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// Lines below this level are dropped. Starts as LOG_LEVEL says (DEBUG, INFO, WARNING, ERROR; INFO
/// when unset). Thread-safe.
void set_level(Level level);
bool enabled(Level level);

enum class Format {
  kText,
  kJson,  ///< {"time":"2026-11-30T14:03:21.042Z","level":"info","message":"..."}
};
/// Before lines are written by other threads.
void set_format(Format format);

/// What a program that reads the log wants of a line.
struct Field {
  std::string_view name;  ///< letters and "_"
  std::variant<std::int64_t, double, std::string_view> value;
};

/// Writes one line. As text it is `message` alone, which says all; as JSON, `fields` follow it.
/// Bytes that are not UTF-8 become U+FFFD, as control characters of a text line do. Thread-safe.
void write(Level level, std::string_view message, std::span<const Field> fields = {});

/// The line that write() makes of it as JSON, for a time in milliseconds since 1970.
std::string to_json(Level level, std::string_view message, std::span<const Field> fields,
                    std::int64_t time_ms);

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
