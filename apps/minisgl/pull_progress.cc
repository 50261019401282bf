#include "pull_progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace minisgl::app {
namespace {

constexpr int kBarWidth = 24;
constexpr int kNameWidth = 36;

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// `text` in `width` columns; of one that is too long the end, which tells files apart.
std::string fitted(const std::string& text, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 4));
  if (text.size() <= columns) return text + std::string(columns - text.size(), ' ');
  return "..." + text.substr(text.size() - (columns - 3));
}

std::string line_of(const std::string& name, std::int64_t done, std::int64_t total,
                    const std::string& more, int columns) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 1;
  std::string tail = fmt::format(" {:3.0f} %  {} of {}{}", std::floor(share * 100), size_text(done),
                                 size_text(total), more);
  // What a narrow terminal has no room for goes in the order of its worth: bar, name, numbers.
  const int room = columns - 1 - static_cast<int>(tail.size());
  const int name_width = std::clamp(room - kBarWidth - 3, 12, kNameWidth);
  const int bar_width = std::min(kBarWidth, room - name_width - 3);
  std::string line = fitted(name, name_width);
  if (bar_width >= 5) {
    const int filled = static_cast<int>(share * bar_width);
    line += " [" + std::string(static_cast<std::size_t>(filled), '=') +
            (filled < bar_width ? ">" : "") +
            std::string(static_cast<std::size_t>(std::max(0, bar_width - filled - 1)), ' ') + "]";
  }
  line += tail;
  return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (value < 999.5e3) return fmt::format("{:.0f} kB", value / 1e3);
  if (value < 999.5e6) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, 359999.0) + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

void Speed::add(Clock::time_point now, std::int64_t total_bytes) {
  constexpr auto kWindow = std::chrono::seconds(5);
  // After a file began anew the count is lower: what was before tells nothing.
  if (!samples_.empty() && total_bytes < samples_.back().bytes) samples_.clear();
  samples_.push_back({now, total_bytes});
  while (samples_.size() > 2 && now - samples_.front().time > kWindow) samples_.pop_front();
}

double Speed::bytes_per_second() const {
  if (samples_.size() < 2) return 0;
  const std::chrono::duration<double> time = samples_.back().time - samples_.front().time;
  if (time.count() <= 0) return 0;
  return static_cast<double>(samples_.back().bytes - samples_.front().bytes) / time.count();
}

PullProgress::PullProgress() : on_terminal_(isatty(STDERR_FILENO) == 1) {}
PullProgress::~PullProgress() { wipe(); }

void PullProgress::plan(int num_files, std::int64_t total_bytes, std::int64_t present_bytes) {
  num_files_ = num_files;
  total_ = total_bytes;
  done_ = present_bytes;
  if (num_files == 0) return;
  say(fmt::format(
      "{} {}, {}{}", num_files, num_files == 1 ? "file" : "files", size_text(total_bytes),
      present_bytes > 0 ? fmt::format(", of which {} are there already", size_text(present_bytes))
                        : ""));
  speed_.add(Speed::Clock::now(), done_);
}

void PullProgress::begin_file(const std::string& path, std::int64_t size, std::int64_t present) {
  ++file_number_;
  path_ = path;
  file_size_ = size;
  file_done_ = present;
  draw(/*now=*/true);
}

void PullProgress::advance(std::int64_t bytes) {
  file_done_ += bytes;
  done_ += bytes;
  draw(/*now=*/false);
}

void PullProgress::end_file() {
  say(fmt::format("{}  {}", fitted(path_, kNameWidth), size_text(file_size_)));
  if (file_number_ < num_files_) draw(/*now=*/true);
}

void PullProgress::retry(const pull::Retry& retry) {
  say(fmt::format("{}; again in {:.0f} s", retry.reason,
                  std::chrono::duration<double>(retry.wait).count()));
  if (file_number_ > 0) draw(/*now=*/true);
}

void PullProgress::draw(bool now) {
  constexpr auto kInterval = std::chrono::milliseconds(100);
  const auto time = std::chrono::steady_clock::now();
  if (!on_terminal_ || (!now && time - last_draw_ < kInterval)) return;
  last_draw_ = time;
  speed_.add(time, done_);
  const double speed = speed_.bytes_per_second();
  std::string more;
  if (speed >= 1) {
    more = fmt::format("  {}/s  {} left", size_text(static_cast<std::int64_t>(speed)),
                       time_text(static_cast<double>(total_ - done_) / speed));
  }
  const int columns = terminal_columns();
  wipe();
  const std::string all = fmt::format("total, file {} of {}", file_number_, num_files_);
  std::fputs((line_of(path_, file_done_, file_size_, "", columns) + "\n" +
              line_of(all, done_, total_, more, columns))
                 .c_str(),
             stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void PullProgress::wipe() {
  // The cursor is at the end of the second line.
  if (drawn_) std::fputs("\r\x1b[K\x1b[1A\r\x1b[K", stderr);
  drawn_ = false;
}

void PullProgress::say(const std::string& line) {
  wipe();
  std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace minisgl::app
