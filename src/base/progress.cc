#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace minisgl {

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), visible_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(std::int64_t done_bytes, std::int64_t total_bytes) {
  if (!is_due(total_bytes)) return;
  constexpr double kMb = 1e6;
  draw(done_bytes, total_bytes,
       fmt::format("{:.0f} MB of {:.0f} MB", static_cast<double>(done_bytes) / kMb,
                   static_cast<double>(total_bytes) / kMb));
}

void ProgressBar::show(std::int64_t done, std::int64_t total, std::string_view detail) {
  if (is_due(total)) draw(done, total, detail);
}

bool ProgressBar::is_due(std::int64_t total) {
  constexpr auto kInterval = std::chrono::milliseconds(50);
  const auto now = std::chrono::steady_clock::now();
  if (!visible_ || total <= 0 || now - last_ < kInterval) return false;
  last_ = now;
  return true;
}

void ProgressBar::draw(std::int64_t done, std::int64_t total, std::string_view detail) {
  constexpr int kWidth = 30;
  drawn_ = true;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * kWidth);
  const std::string bar = std::string(filled, '=') + (filled < kWidth ? ">" : "") +
                          std::string(std::max(0, kWidth - filled - 1), ' ');
  const std::string line =
      fmt::format("\r{}  [{}] {:3.0f} %  {}\x1b[K", label_, bar, share * 100, detail);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace minisgl
