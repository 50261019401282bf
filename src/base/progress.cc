#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace minisgl {

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), visible_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(std::int64_t done_bytes, std::int64_t total_bytes) {
  constexpr int kWidth = 30;
  constexpr auto kInterval = std::chrono::milliseconds(50);
  const auto now = std::chrono::steady_clock::now();
  if (!visible_ || total_bytes <= 0 || now - last_ < kInterval) return;
  last_ = now;
  drawn_ = true;
  const double share = std::clamp(static_cast<double>(done_bytes) / static_cast<double>(total_bytes), 0.0, 1.0);
  const int filled = static_cast<int>(share * kWidth);
  const std::string bar = std::string(filled, '=') + (filled < kWidth ? ">" : "") +
                          std::string(std::max(0, kWidth - filled - 1), ' ');
  constexpr double kMb = 1e6;
  const std::string line = fmt::format("\r{}  [{}] {:3.0f} %  {:.0f} MB of {:.0f} MB\x1b[K", label_, bar, share * 100,
                                       static_cast<double>(done_bytes) / kMb, static_cast<double>(total_bytes) / kMb);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace minisgl
