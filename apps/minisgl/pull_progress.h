// What a download shows on the terminal.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "pull/download.h"

namespace minisgl::app {

/// "812 B", "4.1 MB", "15.32 GB".
std::string size_text(std::int64_t bytes);
/// "0:42", "1:02:03".
std::string time_text(double seconds);

/// Bytes a second over the last seconds.
class Speed {
 public:
  using Clock = std::chrono::steady_clock;
  void add(Clock::time_point now, std::int64_t total_bytes);
  /// 0 while nothing is known.
  double bytes_per_second() const;

 private:
  struct Sample {
    Clock::time_point time;
    std::int64_t bytes;
  };
  std::deque<Sample> samples_;
};

/// On a terminal two lines that are redrawn in place, one for the file and one for all of them,
/// with speed and remaining time; what is finished moves up. Elsewhere one line for each finished
/// file. Writes to standard error.
class PullProgress final : public pull::Progress {
 public:
  PullProgress();
  ~PullProgress() override;
  PullProgress(const PullProgress&) = delete;
  PullProgress& operator=(const PullProgress&) = delete;

  void plan(int num_files, std::int64_t total_bytes, std::int64_t present_bytes) override;
  void begin_file(const std::string& path, std::int64_t size, std::int64_t present) override;
  void advance(std::int64_t bytes) override;
  void end_file() override;
  void retry(const pull::Retry& retry) override;

 private:
  void draw(bool now);
  void wipe();
  void say(const std::string& line);

  bool on_terminal_;
  bool drawn_ = false;
  int num_files_ = 0, file_number_ = 0;
  std::int64_t total_ = 0, done_ = 0;
  std::string path_;
  std::int64_t file_size_ = 0, file_done_ = 0;
  Speed speed_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace minisgl::app
