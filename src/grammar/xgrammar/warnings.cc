#include "grammar/xgrammar/warnings.h"

#include "base/log.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

thread_local XgrammarWarnings* current = nullptr;

}  // namespace

struct XgrammarLog {
  static bool keep(const std::string& message) {
    if (current == nullptr) return false;
    if (current->first_.empty()) current->first_ = message;
    return true;
  }
};

XgrammarWarnings::XgrammarWarnings() { current = this; }
XgrammarWarnings::~XgrammarWarnings() { current = nullptr; }

}  // namespace minisgl

// xgrammar declares these two for programs that have a log of their own (XGRAMMAR_LOG_CUSTOMIZE).
namespace xgrammar {

// NOLINTBEGIN(readability-identifier-naming): the names are the library's
[[noreturn]] void LogFatalImpl(const std::string& /*file*/, int /*line*/,
                               const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw minisgl::Error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
  constexpr int kInfo = 0;
  if (level > kInfo && minisgl::XgrammarLog::keep(message)) return;
  minisgl::log::debug("xgrammar: {}", message);
}
// NOLINTEND(readability-identifier-naming)

}  // namespace xgrammar
